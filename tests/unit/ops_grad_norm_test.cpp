#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "ops/grad_norm/cpu.h"
#include "ops/grad_norm/grad_norm.h"
#include "ops/grad_norm/kernel.h"
#include "ops/grad_norm/reference.h"
#include "ops_harness.h"

namespace spillway::ops_test {
namespace {

OpCase squares(const Matrix& grad, std::int64_t block_rows) {
  return {&sum_squares_spec, {{"block_rows", block_rows}}, {grad}, make_sum_squares_cpu};
}

std::vector<double> expected_sums(const Matrix& grad, std::int64_t block_rows) {
  std::vector<double> sums;
  const auto block = static_cast<std::size_t>(block_rows * grad.type.cols);
  for (std::size_t begin = 0; begin < grad.numbers.size(); begin += block) {
    const std::size_t end = std::min(grad.numbers.size(), begin + block);
    sums.push_back(reference::sum_squares(std::vector<float>(grad.numbers.begin() + static_cast<std::ptrdiff_t>(begin),
                                                             grad.numbers.begin() + static_cast<std::ptrdiff_t>(end))));
  }
  return sums;
}

TEST(SumSquares, IsTheReferenceToTheBit) {
  Seeded seeded;
  struct Shape {
    std::int64_t rows, cols, block_rows;
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Shape& shape : {Shape{1, 1, 1}, Shape{7, 3, 2}, Shape{64, 33, 16}, Shape{65, 17, 32},
                               Shape{1000, 1, 256}, Shape{5, 700, 4}}) {
      const Matrix grad = random_matrix(dtype, shape.rows, shape.cols, seeded.rng);
      const OpCase op = squares(grad, shape.block_rows);
      EXPECT_EQ(run(op)[0].numbers, expected_sums(grad, shape.block_rows)) << shape.rows << " x " << shape.cols;
      expect_bits_do_not_depend_on_schedule(op);
    }
  }
}

// Blocks are whole, so a tensor may be summed piece by piece.
TEST(SumSquares, OfPiecesAreThoseOfTheTensor) {
  Seeded seeded;
  const Matrix whole = random_matrix(DType::f32, 40, 9, seeded.rng);
  const auto cut = static_cast<std::ptrdiff_t>(16 * 9);
  const Matrix head = matrix({DType::f32, 16, 9}, {whole.numbers.begin(), whole.numbers.begin() + cut});
  const Matrix tail = matrix({DType::f32, 24, 9}, {whole.numbers.begin() + cut, whole.numbers.end()});
  std::vector<double> parts = run(squares(head, 8))[0].numbers;
  const std::vector<double> rest = run(squares(tail, 8))[0].numbers;
  parts.insert(parts.end(), rest.begin(), rest.end());
  EXPECT_EQ(run(squares(whole, 8))[0].numbers, parts);
}

TEST(SumSquares, HoldsWhatSinglePrecisionCannot) {
  const Matrix grad = matrix({DType::f32, 2, 2}, {1e30, 0, 1e-30, 1e-30});
  EXPECT_NEAR(run(squares(grad, 1))[0].numbers[0] / 1e60, 1.0, 1e-6);
  EXPECT_NEAR(run(squares(grad, 1))[0].numbers[1] / 2e-60, 1.0, 1e-6);
}

template <typename T>
void expect_targets_agree(const std::vector<T>& grad) {
  const auto count = static_cast<std::int64_t>(grad.size());
  const double expected = baseline::block_sum_squares(grad.data(), count, 0);
  for (const std::int64_t ahead : {0, 1024}) {
    EXPECT_EQ(baseline::block_sum_squares(grad.data(), count, ahead), expected);
    if (best_isa() >= Isa::avx2) {
      EXPECT_EQ(avx2::block_sum_squares(grad.data(), count, ahead), expected);
    }
    if (best_isa() >= Isa::avx512) {
      EXPECT_EQ(avx512::block_sum_squares(grad.data(), count, ahead), expected);
    }
    if (best_isa() >= Isa::avx512_bf16) {
      EXPECT_EQ(avx512_bf16::block_sum_squares(grad.data(), count, ahead), expected);
    }
  }
}

TEST(LinesAhead, AreOfTheProcessorOrAsTheEnvironmentSays) {
  const char* const given = std::getenv("SPILLWAY_PREFETCH");
  const bool intel = __builtin_cpu_is("intel") != 0;
  const bool amd_family_25 = __builtin_cpu_is("amdfam19h") != 0;
  const LinesAhead ahead = lines_ahead();
  EXPECT_EQ(ahead.update_bf16 > 0, given == nullptr ? intel || amd_family_25 : std::string(given) == "on");
  EXPECT_EQ(ahead.update_f32 > 0, given == nullptr ? intel : std::string(given) == "on");
  EXPECT_EQ(ahead.sum_squares > 0, ahead.update_f32 > 0);
}

TEST(SumSquares, TargetsAgree) {
  Seeded seeded;
  std::vector<float> f32;
  std::vector<bf16_t> bf16;
  for (const double number : random_numbers(4099, seeded.rng)) {
    f32.push_back(static_cast<float>(number));
    bf16.push_back(round_bf16(static_cast<float>(number)));
  }
  expect_targets_agree(f32);
  expect_targets_agree(bf16);
}

OpCase clip(double max_norm, const std::vector<std::vector<double>>& sums) {
  OpCase op{&clip_factor_spec, {}, {matrix({DType::f32, 1, 1}, {max_norm})}, make_clip_factor_cpu};
  for (const std::vector<double>& part : sums) {
    op.reads.push_back(matrix({DType::f64, static_cast<std::int64_t>(part.size()), 1}, part));
  }
  return op;
}

TEST(ClipFactor, IsThatOfTorch) {
  const std::vector<std::vector<double>> sums{{9.0, 7.0}, {5.0}, {4.0, 0.0, 11.0}};
  for (const double max_norm : {0.5, 1.0, 6.0, 7.0}) {
    const std::vector<Matrix> writes = run(clip(max_norm, sums));
    EXPECT_EQ(writes[0].numbers[0], 6.0);
    const double factor = max_norm / (6.0 + 1e-6);
    EXPECT_EQ(writes[1].numbers[0], factor < 1 ? static_cast<float>(factor) : 1.0F) << max_norm;
    EXPECT_EQ(writes[1].numbers[0], reference::clip_factor(6.0, static_cast<float>(max_norm)));
  }
}

TEST(ClipFactor, IsExactlyOneWithoutALimit) {
  for (const double max_norm : {0.0, -1.0}) {
    const std::vector<Matrix> writes = run(clip(max_norm, {{1e10}}));
    EXPECT_EQ(writes[0].numbers[0], 1e5);
    EXPECT_EQ(writes[1].numbers[0], 1.0);
  }
  EXPECT_EQ(run(clip(1.0, {{0.0}}))[1].numbers[0], 1.0);
}

TEST(ClipFactor, AddsInIndexOrder) {
  Seeded seeded;
  std::vector<double> sums = random_numbers(1000, seeded.rng);
  for (double& sum : sums) sum = sum * sum;
  const std::vector<std::vector<double>> parts{{sums.begin(), sums.begin() + 333}, {sums.begin() + 333, sums.end()}};
  EXPECT_EQ(run(clip(1.0, parts))[0].numbers[0], reference::norm(sums));
}

TEST(ClipFactor, TheNormShowsWhatIsNotFinite) {
  EXPECT_TRUE(std::isnan(run(clip(1.0, {{std::nan("")}}))[0].numbers[0]));
  EXPECT_TRUE(std::isinf(run(clip(1.0, {{std::numeric_limits<double>::infinity()}}))[0].numbers[0]));
}

}  // namespace
}  // namespace spillway::ops_test
