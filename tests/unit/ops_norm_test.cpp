#include "ops/add/add.h"
#include "ops/gelu/gelu.h"
#include "ops/layernorm/layernorm.h"
#include "ops/layernorm/reference.h"
#include "ops/rmsnorm/reference.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rope/rope.h"
#include "ops/swiglu/swiglu.h"
#include "ops_harness.h"

namespace spillway::ops_test {
namespace {

struct NormCase {
  DType dtype;
  std::int64_t rows, cols, width;
};

// Widths on both sides of the sixteen lanes, rows on both sides of the blocks of 256, several groups a row.
class Norm : public testing::TestWithParam<NormCase> {
 protected:
  Seeded seeded;
  Rng& rng = seeded.rng;
};

INSTANTIATE_TEST_SUITE_P(Shapes, Norm,
                         testing::Values(NormCase{DType::f32, 1, 64, 64}, NormCase{DType::f32, 300, 33, 33},
                                         NormCase{DType::f32, 70, 48, 8}, NormCase{DType::f32, 513, 7, 7},
                                         NormCase{DType::bf16, 257, 96, 96}, NormCase{DType::bf16, 131, 100, 50},
                                         NormCase{DType::bf16, 5, 1000, 1000}));

TEST_P(Norm, RmsnormEqualsReference) {
  const NormCase p = GetParam();
  const Matrix x = random_matrix(p.dtype, p.rows, p.cols, rng, 3);
  const Matrix w = random_matrix(p.dtype, p.width, 1, rng, 0.2, 1);
  const OpCase op{&rmsnorm_spec, {{"epsilon", 1e-5}}, {x, w}};
  const std::vector<Matrix> made = run(op);
  const reference::Rmsnorm expected = reference::rmsnorm(x.numbers, w.numbers, 1e-5);
  expect_close(made[0], expected.y);
  expect_close(made[1], expected.rstd);
  expect_bits_do_not_depend_on_schedule(op);
}

TEST_P(Norm, RmsnormGradientEqualsReference) {
  const NormCase p = GetParam();
  const Matrix x = random_matrix(p.dtype, p.rows, p.cols, rng, 3);
  const Matrix w = random_matrix(p.dtype, p.width, 1, rng, 0.2, 1);
  const Matrix dy = random_matrix(p.dtype, p.rows, p.cols, rng);
  const Matrix rstd = run({&rmsnorm_spec, {{"epsilon", 1e-5}}, {x, w}})[1];
  const OpCase op{&rmsnorm_dx_spec, {}, {x, w, rstd, dy}};
  const std::vector<Matrix> made = run(op);
  const auto expected = reference::rmsnorm_dx(x.numbers, w.numbers, rstd.numbers, dy.numbers);
  expect_close(made[0], expected.dx);
  EXPECT_EQ(made[1].type.rows, (p.rows * p.cols / p.width + 255) / 256);
  expect_close(matrix({DType::f64, p.width, 1}, column_totals(made[1])), expected.dw, Tolerance{1e-5, 1e-5});
  expect_bits_do_not_depend_on_schedule(op);
}

TEST_P(Norm, LayernormEqualsReference) {
  const NormCase p = GetParam();
  const Matrix x = random_matrix(p.dtype, p.rows, p.cols, rng, 2, 1);
  const Matrix w = random_matrix(p.dtype, p.cols, 1, rng, 0.2, 1);
  const Matrix b = random_matrix(p.dtype, p.cols, 1, rng, 0.2);
  const OpCase op{&layernorm_spec, {{"epsilon", 1e-5}}, {x, w, b}};
  const std::vector<Matrix> made = run(op);
  const reference::Layernorm expected = reference::layernorm(x.numbers, w.numbers, b.numbers, 1e-5);
  expect_close(made[0], expected.y);
  expect_close(made[1], expected.mean);
  expect_close(made[2], expected.rstd);
  expect_bits_do_not_depend_on_schedule(op);
}

TEST_P(Norm, LayernormGradientEqualsReference) {
  const NormCase p = GetParam();
  const Matrix x = random_matrix(p.dtype, p.rows, p.cols, rng, 2, 1);
  const Matrix w = random_matrix(p.dtype, p.cols, 1, rng, 0.2, 1);
  const Matrix b = random_matrix(p.dtype, p.cols, 1, rng, 0.2);
  const Matrix dy = random_matrix(p.dtype, p.rows, p.cols, rng);
  const std::vector<Matrix> forward = run({&layernorm_spec, {{"epsilon", 1e-5}}, {x, w, b}});
  const OpCase op{&layernorm_dx_spec, {}, {x, w, forward[1], forward[2], dy}};
  const std::vector<Matrix> made = run(op);
  const reference::Layernorm saved{{}, forward[1].numbers, forward[2].numbers};
  const auto expected = reference::layernorm_dx(x.numbers, w.numbers, saved, dy.numbers);
  expect_close(made[0], expected.dx);
  expect_close(matrix({DType::f64, p.cols, 1}, column_totals(made[1])), expected.dw, Tolerance{1e-5, 1e-5});
  expect_close(matrix({DType::f64, p.cols, 1}, column_totals(made[2])), expected.db, Tolerance{1e-5, 1e-5});
  expect_bits_do_not_depend_on_schedule(op);
}

TEST(NormReference, GradientsEqualFiniteDifferences) {
  Seeded seeded;
  const std::vector<double> x = random_numbers(5 * 6, seeded.rng);
  const std::vector<double> w = random_numbers(6, seeded.rng, 0.2, 1);
  const std::vector<double> b = random_numbers(6, seeded.rng);
  const std::vector<double> dy = random_numbers(5 * 6, seeded.rng);
  const auto rms = [&](const auto& x_, const auto& w_) { return reference::rmsnorm(x_, w_, 1e-3); };
  const auto rms_gradients = reference::rmsnorm_dx(x, w, rms(x, w).rstd, dy);
  expect_gradient(
      rms_gradients.dx, [&](const auto& at) { return rms(at, w).y; }, x, dy);
  expect_gradient(
      rms_gradients.dw, [&](const auto& at) { return rms(x, at).y; }, w, dy);
  const auto layer = [&](const auto& x_, const auto& w_, const auto& b_) {
    return reference::layernorm(x_, w_, b_, 1e-3);
  };
  const auto layer_gradients = reference::layernorm_dx(x, w, layer(x, w, b), dy);
  expect_gradient(
      layer_gradients.dx, [&](const auto& at) { return layer(at, w, b).y; }, x, dy);
  expect_gradient(
      layer_gradients.dw, [&](const auto& at) { return layer(x, at, b).y; }, w, dy);
  expect_gradient(
      layer_gradients.db, [&](const auto& at) { return layer(x, w, at).y; }, b, dy);
}

// The mean of squares less the squared mean would lose every digit here.
TEST(Layernorm, KeepsDigitsWhenTheMeanIsLarge) {
  Seeded seeded;
  const Matrix x = random_matrix(DType::f32, 4, 256, seeded.rng, 1, 3000);
  const Matrix w = random_matrix(DType::f32, 256, 1, seeded.rng);
  const Matrix b = random_matrix(DType::f32, 256, 1, seeded.rng);
  const Matrix y = run({&layernorm_spec, {{"epsilon", 1e-5}}, {x, w, b}})[0];
  expect_close(y, reference::layernorm(x.numbers, w.numbers, b.numbers, 1e-5).y, Tolerance{1e-3, 1e-3});
}

// What backward records for a chain of all the ops around the matmuls, two micro-batches of it.
TEST(GradientRules, RecordTheReverseOfTheChain) {
  State state;
  const TensorId weight = state.add({.name = "w", .rows = 8, .trainable = true}, 8);
  const TensorId gain = state.add({.name = "g", .rows = 8, .trainable = true}, 8);
  const TensorId bias = state.add({.name = "b", .rows = 8, .trainable = false}, 8);
  Program program;
  Recorder recorder(program, state);
  std::vector<Recorder::Seed> seeds;
  for (const std::int32_t micro_batch : {0, 1}) {
    recorder.label({.phase = Phase::forward, .layer = 0, .micro_batch = micro_batch, .part = "all"});
    const Operand x = recorder.input({DType::f32, 3, 8});
    const Operand positions = recorder.input({DType::i32, 3, 1});
    const Operand frequencies = recorder.input({DType::f32, 2, 1});
    const Operand a = rmsnorm(recorder, x, recorder.state_tensor(weight), 1e-5);
    const Operand b = rope(recorder, a, positions, frequencies, 4);
    const Operand c = swiglu(recorder, gelu(recorder, b), a);
    const Operand y =
        layernorm(recorder, add(recorder, c, x), recorder.state_tensor(gain), recorder.state_tensor(bias), 1e-5);
    seeds.push_back({y, recorder.input({DType::f32, 3, 8})});
  }
  const std::size_t forward_ops = program.ops.size();
  recorder.backward(seeds, add_spec, [](const Label&) {});
  std::vector<std::string_view> names;
  for (std::size_t i = forward_ops; i < program.ops.size(); ++i) names.push_back(program.ops[i].spec->name);
  // x is an input and b frozen, so neither gets a gradient; `a` has two uses, whose gradients are added.
  std::vector<std::string_view> expected{"layernorm_dx", "add_partials", "swiglu_dx",  "gelu_dx",
                                         "rope",         "add",          "rmsnorm_dx", "add_partials"};
  for (std::size_t i = 0; i < 8; ++i) expected.push_back(expected[i]);
  EXPECT_EQ(names, expected);
  EXPECT_EQ(program.ops[forward_ops + 4].attrs.integer("inverse"), 1);
  // The first micro-batch overwrites, the second adds to it.
  EXPECT_FALSE(program.ops[forward_ops + 7].reads[1].exists());
  EXPECT_EQ(program.ops[forward_ops + 15].reads[1], program.ops[forward_ops + 7].writes[0]);
  EXPECT_EQ(recorder.accumulator(recorder.state_tensor(weight)), program.ops[forward_ops + 15].writes[0]);
}

}  // namespace
}  // namespace spillway::ops_test
