#include <gtest/gtest.h>

#include "ops/dispatch.h"
#include "ops/linear/cpu.h"
#include "ops/linear/linear.h"
#include "ops/linear/reference.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/panel_matmul.h"
#include "ops_harness.h"
#include "under_sanitizer.h"

namespace spillway {
namespace {

using namespace ops_test;  // NOLINT(google-build-using-namespace)
using Numbers = std::vector<double>;

struct LinearSize {
  std::int64_t rows;
  std::int64_t in;
  std::int64_t out;
};

// Odd, prime, one row, one column, whole panels and not.
const std::vector<LinearSize> linear_sizes = {{1, 64, 48},  {3, 7, 5},      {1, 1, 1},     {17, 31, 1},
                                              {64, 64, 64}, {65, 33, 47},   {130, 48, 80}, {257, 40, 29},
                                              {70, 8, 300}, {300, 24, 130}, {1100, 24, 16}};
// Several parts each way; several blocks of one part.
const std::vector<LinearSize> large_linear_sizes = {{530, 10, 1610}, {24, 3000, 210}};

struct Variant {
  DType dtype = DType::f32;
  bool weight_out_in = true;
  bool optional = false;  // a bias, or an accumulator
  bool out_f32 = false;
  std::int64_t row_begin = 0;
};

// An op, what its reference says, and the largest that a term of these sums can be.
struct Tested {
  OpCase op;
  Numbers wanted;
  double largest_term;
};

double largest_term(const Matrix& a, const Matrix& b, const Matrix& added) {
  return std::max(largest_of(a.numbers) * largest_of(b.numbers), largest_of(added.numbers));
}

Attrs attributes(const LinearSize& size, const Variant& variant) {
  Attrs attrs({{"weight_out_in", std::int64_t{variant.weight_out_in}}});
  if (variant.out_f32) attrs.set("out_f32", std::int64_t{1});
  if (variant.row_begin != 0) {
    attrs.set("row_begin", variant.row_begin);
    attrs.set("row_count", size.rows);
  }
  return attrs;
}

Matrix random_weight(const LinearSize& size, const Variant& variant, DType dtype, Rng& rng) {
  return variant.weight_out_in ? random_matrix(dtype, size.out, size.in, rng)
                               : random_matrix(dtype, size.in, size.out, rng);
}

// Of which the op takes `rows` rows from row_begin on.
Matrix random_x(const LinearSize& size, const Variant& variant, Rng& rng) {
  return random_matrix(variant.dtype, size.rows + 2 * variant.row_begin, size.in, rng);
}

Numbers chosen(const Matrix& x, const LinearSize& size, const Variant& variant) {
  const auto begin = x.numbers.begin() + variant.row_begin * size.in;
  return {begin, begin + size.rows * size.in};
}

Numbers sum(Numbers a, const Numbers& b) {
  for (std::size_t i = 0; i < b.size(); ++i) a[i] += b[i];
  return a;
}

LinearReference reference(const LinearSize& size, bool weight_out_in) {
  return {.rows = size.rows, .in = size.in, .out = size.out, .weight_out_in = weight_out_in};
}

Tested forward(const LinearSize& size, const Variant& variant, Rng& rng) {
  const Matrix x = random_x(size, variant, rng);
  const Matrix weight = random_weight(size, variant, variant.dtype, rng);
  const Matrix bias = variant.optional ? random_matrix(variant.dtype, size.out, 1, rng) : absent();
  return {{&linear_spec, attributes(size, variant), {x, weight, bias}, &make_linear_cpu},
          reference(size, variant.weight_out_in).forward(chosen(x, size, variant), weight.numbers, bias.numbers),
          largest_term(x, weight, bias)};
}

Tested input_gradient(const LinearSize& size, const Variant& variant, Rng& rng) {
  const Matrix dy = random_matrix(variant.dtype, size.rows, size.out, rng);
  const Matrix weight = random_weight(size, variant, variant.dtype, rng);
  const Matrix old = variant.optional ? random_matrix(DType::f32, size.rows, size.in, rng) : absent();
  return {{&linear_dx_spec, attributes(size, variant), {dy, weight, old}, &make_linear_dx_cpu},
          sum(reference(size, variant.weight_out_in).dx(dy.numbers, weight.numbers), old.numbers),
          largest_term(dy, weight, old)};
}

Tested weight_gradient(const LinearSize& size, const Variant& variant, Rng& rng) {
  const Matrix x = random_x(size, variant, rng);
  const Matrix dy = random_matrix(variant.dtype, size.rows, size.out, rng);
  const Matrix old = variant.optional ? random_weight(size, variant, DType::f32, rng) : absent();
  return {{&linear_dw_spec, attributes(size, variant), {x, dy, old}, &make_linear_dw_cpu},
          sum(reference(size, variant.weight_out_in).dw(chosen(x, size, variant), dy.numbers), old.numbers),
          largest_term(x, dy, old)};
}

constexpr Tested (*all_ops[])(const LinearSize&, const Variant&, Rng&) = {&forward, &input_gradient, &weight_gradient};

// A sum of products is exact to a share of its terms, not of itself: errors are measured against the largest of both.
Tolerance tolerance(DType in, DType out) {
  return {out == DType::bf16 ? 1.0 / 256 : 1e-5, in == DType::bf16 ? 2e-5 : 5e-6};
}

TEST(Linear, AgreesWithTheReference) {
  Seeded seeded;
  for (const auto make : all_ops) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (int bits = 0; bits < 16; ++bits) {
        const Variant variant{.dtype = dtype,
                              .weight_out_in = (bits & 1) != 0,
                              .optional = (bits & 2) != 0,
                              .out_f32 = (bits & 4) != 0,
                              .row_begin = (bits & 8) != 0 && make != &input_gradient ? 5 : 0};
        std::vector<LinearSize> sizes = linear_sizes;
        if (!under_sanitizer || bits % 5 == 0)  // 0, 5, 10 and 15 have every switch both ways
          sizes.insert(sizes.end(), large_linear_sizes.begin(), large_linear_sizes.end());
        for (const LinearSize& size : sizes) {
          SCOPED_TRACE(fmt::format("{} x {} x {}, {}, variant {}", size.rows, size.in, size.out, name_of(dtype), bits));
          const Tested tested = make(size, variant, seeded.rng);
          const Matrix written = run(tested.op)[0];
          expect_close(written, tested.wanted, tolerance(dtype, written.type.dtype), tested.largest_term);
        }
      }
    }
  }
}

TEST(Linear, ReferenceGradientsAgreeWithFiniteDifferences) {
  Seeded seeded;
  for (const bool weight_out_in : {false, true}) {
    const LinearReference op = reference({4, 3, 5}, weight_out_in);
    const Numbers x = random_numbers(12, seeded.rng);
    const Numbers weight = random_numbers(15, seeded.rng);
    const Numbers dy = random_numbers(20, seeded.rng);
    expect_gradient(
        op.dx(dy, weight), [&](const Numbers& at) { return op.forward(at, weight, {}); }, x, dy);
    expect_gradient(
        op.dw(x, dy), [&](const Numbers& at) { return op.forward(x, at, {}); }, weight, dy);
  }
}

TEST(Linear, BitsDoNotDependOnOrderThreadsOrPlace) {
  Seeded seeded;
  for (const auto make : all_ops) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const bool optional : {false, true}) {
        for (const LinearSize& size :
             {LinearSize{300, 24, 257}, LinearSize{1030, 16, 264}, LinearSize{65, 33, 47}, LinearSize{24, 3000, 210}}) {
          const Variant variant{.dtype = dtype, .weight_out_in = size.rows > 100, .optional = optional};
          const OpCase op = make(size, variant, seeded.rng).op;
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
}

// What a thread has transposed serves its next part of the same rows: without the factor that it was made of, the
// first row is what it was.
TEST(Linear, AWeightGradientTransposesOnceForAllPartsOfItsRows) {
  if (matmul_tile_isa() == Isa::baseline) GTEST_SKIP() << "products of this processor go to the library";
  Seeded seeded;
  const OpCase op = weight_gradient({24, 3000, 210}, {.dtype = DType::bf16, .weight_out_in = false}, seeded.rng).op;
  const KernelKey key = key_of(op);
  const std::unique_ptr<Kernel> kernel = op.make(key);
  const auto first_row = [&](bool says_last_task) {
    Buffer x(op.reads[0].type.bytes());
    Buffer dy(op.reads[1].type.bytes());
    Buffer dw(key.writes[0].bytes());
    const Buffer scratch(kernel->scratch_bytes());
    put(x.data(), op.reads[0]);
    put(dy.data(), op.reads[1]);
    const std::byte* const reads[] = {x.data(), dy.data(), nullptr};
    std::byte* const writes[] = {dw.data()};
    KernelArgs args{reads, writes, {scratch.data(), static_cast<std::size_t>(scratch.bytes())}};
    kernel->run(0, args);
    std::memset(x.data(), 0, static_cast<std::size_t>(x.bytes()));
    if (says_last_task) args.last_task = 0;
    kernel->run(1, args);
    std::vector<std::byte> row(dw.data(), dw.data() + key.writes[0].cols * size_of(key.writes[0].dtype));
    return row;
  };
  std::vector<std::byte> expected = run_to_bytes(op)[0];
  expected.resize(static_cast<std::size_t>(key.writes[0].cols * size_of(key.writes[0].dtype)));
  EXPECT_TRUE(first_row(true) == expected);
  EXPECT_FALSE(first_row(false) == expected);
}

// The order in which a process makes its kernels must leave no trace; one row is where it once did.
TEST(Linear, BitsDoNotDependOnTheOrderOfCreation) {
  Seeded seeded;
  std::vector<OpCase> ops;
  for (const auto make : all_ops) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const LinearSize& size : {LinearSize{1, 96, 80}, LinearSize{2, 96, 80}, LinearSize{64, 96, 80},
                                     LinearSize{65, 96, 80}, LinearSize{1, 80, 96}}) {
        ops.push_back(make(size, {.dtype = dtype}, seeded.rng).op);
      }
    }
  }
  std::vector<std::vector<std::vector<std::byte>>> expected;
  for (const OpCase& op : ops) expected.push_back(run_to_bytes(op));
  std::vector<std::size_t> order(ops.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (int repeat = 0; repeat < 5; ++repeat) {
    std::shuffle(order.begin(), order.end(), seeded.rng);
    std::vector<std::unique_ptr<Kernel>> others;  // stay alive while the later ones are made
    for (const std::size_t i : order) {
      others.push_back(ops[i].make(key_of(ops[i])));
      EXPECT_TRUE(run_to_bytes(ops[i]) == expected[i]) << ops[i].spec->name << " " << ops[i].reads[0].type.rows;
    }
  }
}

// What an op computes is a sum over all tokens of a micro-batch: adding the next one's is adding the same numbers.
TEST(Linear, AnAccumulatedWeightGradientIsTheOldOnePlusTheNew) {
  Seeded seeded;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Tested tested = weight_gradient({200, 48, 72}, {.dtype = dtype, .optional = true}, seeded.rng);
    const Matrix together = run(tested.op)[0];
    const Matrix old = tested.op.reads[2];
    tested.op.reads[2] = absent();
    const Matrix alone = run(tested.op)[0];
    for (std::size_t i = 0; i < old.numbers.size(); ++i) {
      const float expected = static_cast<float>(old.numbers[i]) + static_cast<float>(alone.numbers[i]);
      ASSERT_EQ(together.numbers[i], static_cast<double>(expected)) << name_of(dtype) << " element " << i;
    }
  }
}

TEST(Linear, TheThreadThatMakesAKernelLeavesNoTrace) {
  Seeded seeded;
  const OpCase op = weight_gradient({300, 128, 257}, {.optional = true}, seeded.rng).op;
  const auto expected = run_to_bytes(op);
  std::thread([&] { EXPECT_TRUE(run_to_bytes(op) == expected); }).join();
}

TEST(Linear, GradientRuleAddsMicroBatchesInOneAccumulator) {
  State state;
  const TensorId weight =
      state.add({.name = "w", .dtype = DType::f32, .rows = 6, .cols = 4, .trainable = true}, 1 << 20);
  const TensorId bias = state.add({.name = "b", .dtype = DType::f32, .rows = 6, .cols = 1, .trainable = true}, 1 << 20);
  Program program;
  Recorder recorder(program, state);
  std::vector<Recorder::Seed> seeds;
  for (std::int32_t micro_batch = 0; micro_batch < 2; ++micro_batch) {
    recorder.label({.phase = Phase::forward, .layer = 0, .micro_batch = micro_batch, .part = "mlp"});
    const Operand x = recorder.input({DType::f32, 5, 4});
    const Operand y = linear(recorder, x, recorder.state_tensor(weight), recorder.state_tensor(bias));
    seeds.push_back({y, recorder.input({DType::f32, 5, 6})});
  }
  recorder.backward(seeds, linear_spec, [](const Label&) {});
  std::vector<const Op*> weight_gradients;
  std::vector<std::string_view> names;
  for (const Op& op : program.ops) {
    names.push_back(op.spec->name);
    if (op.spec == &linear_dw_spec) weight_gradients.push_back(&op);
  }
  EXPECT_EQ(names, (std::vector<std::string_view>{"linear", "linear", "linear_dw", "column_sums", "add_partials",
                                                  "linear_dw", "column_sums", "add_partials"}));
  ASSERT_EQ(weight_gradients.size(), 2U);
  EXPECT_FALSE(weight_gradients[0]->reads[2].exists());
  EXPECT_EQ(weight_gradients[1]->reads[2], weight_gradients[0]->writes[0]);
}

TEST(Linear, ARoundedGradientIsTheGradientRounded) {
  Seeded seeded;
  for (const bool out_in : {false, true}) {
    for (const LinearSize& size : {LinearSize{5, 7, 3}, LinearSize{300, 128, 257}, LinearSize{64, 800, 96}}) {
      Tested tested = weight_gradient(size, {.dtype = DType::bf16, .weight_out_in = out_in}, seeded.rng);
      const Matrix wide = run(tested.op)[0];
      tested.op.attrs.set("rounded", std::int64_t{1});
      const Matrix rounded = run(tested.op)[0];
      ASSERT_EQ(rounded.type.dtype, DType::bf16);
      for (std::size_t i = 0; i < wide.numbers.size(); ++i)
        ASSERT_EQ(rounded.numbers[i], widen(round_bf16(static_cast<float>(wide.numbers[i])))) << i;
    }
  }
}

// The only contribution is rounded where it is written; where several add up, the sum is rounded apart, in place of
// none.
TEST(Linear, AnOnlyContributionIsRoundedByItsOp) {
  for (const std::int32_t micro_batches : {1, 2}) {
    State state;
    const TensorId weight =
        state.add({.name = "w", .dtype = DType::bf16, .rows = 6, .cols = 4, .trainable = true}, 1 << 20);
    Program program;
    Recorder recorder(program, state);
    const Operand w = recorder.state_tensor(weight);
    std::vector<Recorder::Seed> seeds;
    for (std::int32_t m = 0; m < micro_batches; ++m) {
      recorder.label({.phase = Phase::forward, .layer = 0, .micro_batch = m, .part = "mlp"});
      const Operand y = linear(recorder, recorder.input({DType::bf16, 5, 4}), w, {});
      seeds.push_back({y, recorder.input({DType::bf16, 5, 6})});
    }
    recorder.backward(seeds, linear_spec, [](const Label&) {});
    const Operand made = recorder.accumulator(w);
    const Operand rounded = recorder.round_accumulator(w, PieceId::none);
    EXPECT_EQ(rounded.exists(), micro_batches == 1);
    EXPECT_EQ(program.type_of(made).dtype, micro_batches == 1 ? DType::bf16 : DType::f32);
  }
}

TEST(Linear, TasksDependOnTheShapeAlone) {
  EXPECT_EQ(matmul_panel_rows(1), 64);
  EXPECT_EQ(matmul_panel_rows(1024), 128);
  EXPECT_EQ(matmul_panel_rows(4096), 256);
  Seeded seeded;
  const OpCase op = forward({300, 32, 32}, {}, seeded.rng).op;
  EXPECT_EQ(op.make(key_of(op))->tasks(), matmul_tile_isa() == Isa::baseline ? 3 : 1);
}

TEST(Linear, TheNumericKeyNamesTheLibraryAndTheImplementation) {
  const std::string key = matmul_numeric_key();
  EXPECT_TRUE(key.starts_with("onednn ")) << key;
  EXPECT_NE(key.find(best_isa() >= Isa::avx512 ? "brg:" : "gemm:jit"), std::string::npos) << key;
  EXPECT_EQ(key, matmul_numeric_key());
  const bool amx = matmul_tile_isa() != Isa::baseline && matmul_bf16_product() == Bf16Product::amx;
  EXPECT_EQ(key.find("amx 32x32") != std::string::npos, amx) << key;
}

// In a process of its own, since the cap must come before the first product.
TEST(LinearDeathTest, TheInstructionSetCanBeCappedBeforeTheFirstProduct) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto capped_key = [] {
    cap_matmul_isa(Isa::avx2);
    const std::string key = matmul_numeric_key();
    std::exit(key.find("gemm:jit") != std::string::npos && !matmul_has_bf16() ? 0 : 1);
  };
  EXPECT_EXIT(capped_key(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace spillway
