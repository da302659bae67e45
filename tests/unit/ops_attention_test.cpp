#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/attention/attention.h"
#include "ops/attention/cpu.h"
#include "ops/attention/reference.h"
#include "ops_harness.h"

namespace spillway {
namespace {

using namespace ops_test;  // NOLINT(google-build-using-namespace)
using Numbers = std::vector<double>;

struct AttentionSize {
  std::int64_t sequences = 1;
  AttentionShape shape;  // tokens, heads, kv_heads, head_dim

  std::int64_t tokens() const { return sequences * shape.sequence_length; }
};

// Few tokens, ragged and whole blocks, prime head sizes, grouped heads, one key/value head.
const std::vector<AttentionSize> attention_sizes = {{2, {5, 2, 1, 7}},    {1, {16, 2, 2, 16}},   {3, {33, 4, 2, 13}},
                                                    {1, {128, 2, 2, 64}}, {2, {129, 3, 1, 16}},  {1, {300, 4, 2, 32}},
                                                    {2, {256, 2, 2, 20}}, {1, {150, 2, 1, 128}}, {1, {70, 2, 2, 16}},
                                                    {1, {100, 2, 1, 32}}, {1, {140, 1, 1, 256}}, {1, {40, 1, 1, 800}}};

struct Problem {
  AttentionSize size;
  Matrix q, k, v, d_o;
  AttentionReference reference;
  Matrix o;    // the reference's, in the dtype
  Matrix lse;  // the reference's
};

void solve(Problem& problem) {
  const auto made = problem.reference.forward(problem.q.numbers, problem.k.numbers, problem.v.numbers);
  problem.o = matrix(problem.q.type, made.o);
  problem.lse = matrix({DType::f32, problem.size.tokens(), problem.size.shape.heads}, made.lse);
}

Problem make_problem(const AttentionSize& size, DType dtype, Rng& rng) {
  const std::int64_t q_cols = size.shape.heads * size.shape.head_dim;
  const std::int64_t kv_cols = size.shape.kv_heads * size.shape.head_dim;
  Problem problem{.size = size,
                  .q = random_matrix(dtype, size.tokens(), q_cols, rng, 1.5),
                  .k = random_matrix(dtype, size.tokens(), kv_cols, rng, 1.5),
                  .v = random_matrix(dtype, size.tokens(), kv_cols, rng),
                  .d_o = random_matrix(dtype, size.tokens(), q_cols, rng),
                  .reference = {.shape = size.shape, .sequences = size.sequences, .round_terms = dtype == DType::bf16},
                  .o = {},
                  .lse = {}};
  solve(problem);
  return problem;
}

// The rows of several matrices side by side.
Matrix side_by_side(std::initializer_list<const Matrix*> parts) {
  Matrix out{(*parts.begin())->type, {}};
  out.type.cols = 0;
  for (const Matrix* part : parts) out.type.cols += part->type.cols;
  for (std::int64_t r = 0; r < out.type.rows; ++r) {
    for (const Matrix* part : parts) {
      const auto row = part->numbers.begin() + r * part->type.cols;
      out.numbers.insert(out.numbers.end(), row, row + part->type.cols);
    }
  }
  return out;
}

Attrs attributes(const AttentionShape& shape, bool packed) {
  Attrs attrs({{"sequence_length", shape.sequence_length},
               {"heads", shape.heads},
               {"kv_heads", shape.kv_heads},
               {"head_dim", shape.head_dim}});
  if (packed) attrs.set("packed", std::int64_t{1});
  return attrs;
}

OpCase forward(const Problem& problem, bool packed) {
  OpCase op{
      &attention_spec, attributes(problem.size.shape, packed), {problem.q, problem.k, problem.v}, &make_attention_cpu};
  if (packed) op.reads = {side_by_side({&problem.q, &problem.k, &problem.v})};
  return op;
}

OpCase backward(const Problem& problem, bool packed) {
  OpCase op = forward(problem, packed);
  op.spec = &attention_dx_spec;
  op.make = &make_attention_dx_cpu;
  op.reads.insert(op.reads.end(), {problem.o, problem.lse, problem.d_o});
  return op;
}

// dq, dk and dv, or dqkv.
std::vector<Numbers> wanted_gradients(const Problem& problem, bool packed) {
  const auto [dq, dk, dv] =
      problem.reference.backward(problem.q.numbers, problem.k.numbers, problem.v.numbers,
                                 {.o = problem.o.numbers, .lse = problem.lse.numbers}, problem.d_o.numbers);
  if (!packed) return {dq, dk, dv};
  const Matrix parts[] = {{problem.q.type, dq}, {problem.k.type, dk}, {problem.v.type, dv}};
  return {side_by_side({&parts[0], &parts[1], &parts[2]}).numbers};
}

Tolerance tolerance(DType dtype) { return dtype == DType::bf16 ? Tolerance{1.0 / 128, 4e-3} : Tolerance{1e-5, 1e-5}; }

TEST(Attention, AgreesWithTheReference) {
  Seeded seeded;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const AttentionSize& size : attention_sizes) {
      const Problem problem = make_problem(size, dtype, seeded.rng);
      for (const bool packed : {false, true}) {
        SCOPED_TRACE(fmt::format("{} x {} tokens, {}/{} heads of {}, {}{}", size.sequences, size.shape.sequence_length,
                                 size.shape.heads, size.shape.kv_heads, size.shape.head_dim, name_of(dtype),
                                 packed ? ", packed" : ""));
        const auto made = run(forward(problem, packed));
        expect_close(made[0], problem.o.numbers, tolerance(dtype));
        expect_close(made[1], problem.lse.numbers, Tolerance{1e-5, 1e-5});
        const auto gradients = run(backward(problem, packed));
        const auto wanted = wanted_gradients(problem, packed);
        for (std::size_t i = 0; i < wanted.size(); ++i) expect_close(gradients[i], wanted[i], tolerance(dtype));
      }
    }
  }
}

TEST(Attention, OneTokenSeesItselfAlone) {
  Seeded seeded;
  const Problem problem = make_problem({3, {1, 2, 2, 16}}, DType::f32, seeded.rng);
  expect_close(run(forward(problem, false))[0], problem.v.numbers);
  const auto gradients = run(backward(problem, false));
  for (const double number : gradients[0].numbers) EXPECT_LT(std::abs(number), 1e-5);
  for (const double number : gradients[1].numbers) EXPECT_LT(std::abs(number), 1e-5);
  expect_close(gradients[2], problem.d_o.numbers);
}

TEST(Attention, BitsDoNotDependOnOrderThreadsOrPlace) {
  Seeded seeded;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const AttentionSize& size : {AttentionSize{2, {150, 4, 2, 32}}, AttentionSize{1, {260, 3, 3, 20}}}) {
      const Problem problem = make_problem(size, dtype, seeded.rng);
      for (const auto make : {&forward, &backward}) {
        const OpCase op = make(problem, size.sequences == 1);
        expect_bits_do_not_depend_on_schedule(op);
        const auto expected = run_to_bytes(op);
        for (const std::int64_t shift_bytes : {64, 192, 2048}) {
          EXPECT_TRUE(run_to_bytes(op, {.threads = 2, .shift_bytes = shift_bytes}) == expected)
              << op.spec->name << " shifted by " << shift_bytes;
        }
      }
    }
  }
}

TEST(Attention, ASequenceHasTheSameBitsAloneAndInABatch) {
  Seeded seeded;
  const AttentionShape shape{.sequence_length = 140, .heads = 4, .kv_heads = 2, .head_dim = 16};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Problem batch = make_problem({3, shape}, dtype, seeded.rng);
    Problem alone = batch;
    alone.size.sequences = 1;
    for (Matrix* part : {&alone.q, &alone.k, &alone.v, &alone.d_o, &alone.o, &alone.lse}) {
      part->type.rows /= 3;
      part->numbers.resize(part->numbers.size() / 3);
    }
    for (const auto make : {&forward, &backward}) {
      auto expected = run_to_bytes(make(batch, false));
      for (auto& bytes : expected) bytes.resize(bytes.size() / 3);
      EXPECT_TRUE(run_to_bytes(make(alone, false)) == expected) << make(alone, false).spec->name;
    }
  }
}

TEST(Attention, ReferenceGradientsAgreeWithFiniteDifferences) {
  Seeded seeded;
  Problem problem = make_problem({2, {6, 4, 2, 5}}, DType::f32, seeded.rng);
  const Numbers &q = problem.q.numbers, &k = problem.k.numbers, &v = problem.v.numbers, &d_o = problem.d_o.numbers;
  const auto made = problem.reference.forward(q, k, v);
  const auto [dq, dk, dv] = problem.reference.backward(q, k, v, made, d_o);
  expect_gradient(
      dq, [&](const Numbers& at) { return problem.reference.forward(at, k, v).o; }, q, d_o);
  expect_gradient(
      dk, [&](const Numbers& at) { return problem.reference.forward(q, at, v).o; }, k, d_o);
  expect_gradient(
      dv, [&](const Numbers& at) { return problem.reference.forward(q, k, at).o; }, v, d_o);
}

TEST(Attention, LargeScoresNeitherOverflowNorLoseTheLargest) {
  Seeded seeded;
  Problem problem = make_problem({1, {40, 1, 1, 8}}, DType::f32, seeded.rng);
  for (double& number : problem.q.numbers) number *= 1024;
  solve(problem);
  const auto made = run(forward(problem, false));
  expect_close(made[0], problem.o.numbers, Tolerance{1e-2, 1e-2});
  expect_close(made[1], problem.lse.numbers, Tolerance{1e-5, 1e-5});
}

TEST(Attention, ScoresBeyondAllDigitsPickTheLargest) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Seeded seeded;
    Problem problem = make_problem({1, {40, 1, 1, 16}}, dtype, seeded.rng);
    for (double& number : problem.q.numbers) number = std::ldexp(1.0, 45);
    for (std::size_t i = 0; i < problem.k.numbers.size(); ++i)
      problem.k.numbers[i] = static_cast<double>(i / 16 * 37 % 41);  // each token's is another one
    solve(problem);
    expect_close(run(forward(problem, false))[0], problem.o.numbers, tolerance(dtype));
  }
}

TEST(Attention, ANotANumberIsSeenByEveryLaterTokenAndNoEarlierOne) {
  Seeded seeded;
  Problem problem = make_problem({1, {140, 1, 1, 8}}, DType::f32, seeded.rng);
  problem.k.numbers[8 * 20] = std::numeric_limits<double>::quiet_NaN();
  const Numbers o = run(forward(problem, false))[0].numbers;
  for (std::size_t token = 0; token < 140; ++token) EXPECT_EQ(std::isnan(o[token * 8]), token >= 20) << token;
}

TEST(Attention, ScratchGrowsWithTokensNotWithTheirSquare) {
  const auto scratch_bytes = [](std::int64_t tokens) {
    KernelKey key{&attention_spec, attributes({tokens, 4, 4, 64}, true), {{DType::f32, tokens, 3 * 256}}, {}};
    key.writes = attention_spec.infer(key.attrs, key.reads);
    return make_attention_cpu(key)->scratch_bytes();
  };
  EXPECT_LT(scratch_bytes(8192), 2 * scratch_bytes(4096));
}

}  // namespace
}  // namespace spillway
