#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/matmul/tile_matmul.h"
#include "ops_harness.h"

namespace spillway {
namespace {

using ops_test::Seeded;

constexpr std::int64_t m = 37;  // whole tiles and a part of one
constexpr std::int64_t k = 150;

struct Case {
  std::int64_t n;  // a multiple of 64 but not of 48 has tiles of 6 rows
  bool transposed_b;
};

std::vector<bf16_t> numbers(std::int64_t count, Seeded& seeded) {
  std::vector<bf16_t> values;
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(round_bf16(normal(seeded.rng)));
  return values;
}

std::vector<float> product(Bf16Product how, const Case& test, const std::vector<bf16_t>& a,
                           const std::vector<bf16_t>& b) {
  const MatmulShape shape{.m = m, .n = test.n, .k = k, .in = DType::bf16, .transposed_b = test.transposed_b};
  ScratchLayout layout;
  const TileMatmul tiles(shape, layout, how);
  std::vector<std::byte> scratch(static_cast<std::size_t>(layout.bytes() + 64));
  const auto misaligned = reinterpret_cast<std::uintptr_t>(scratch.data()) % 64;
  std::vector<float> c(static_cast<std::size_t>(m * test.n));
  for (std::int64_t task = 0; task < tiles.tasks(); ++task) {
    const MatmulPart part = tiles.part(task);
    tiles.run(task, {.a = a.data() + part.row * k, .b = b.data(), .c = c.data()},
              std::span(scratch).subspan((64 - misaligned) % 64));
  }
  return c;
}

class TileMatmulTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!matmul_has_bf16()) GTEST_SKIP() << "this processor has no AVX512_BF16";
  }
};

// Each product is exact in f32, so only the order of the sums matters.
TEST_P(TileMatmulTest, WidenedElementsAreSumsInTheOrderOfK) {
  Seeded seeded;
  const Case test = GetParam();
  const auto a = numbers(m * k, seeded);
  const auto b = numbers(k * test.n, seeded);
  const std::vector<float> c = product(Bf16Product::widened, test, a, b);
  for (std::int64_t row = 0; row < m; ++row) {
    for (std::int64_t column = 0; column < test.n; ++column) {
      float sum = 0;
      for (std::int64_t step = 0; step < k; ++step) {
        const std::int64_t at = test.transposed_b ? column * k + step : step * test.n + column;
        sum = std::fma(widen(a[static_cast<std::size_t>(row * k + step)]), widen(b[static_cast<std::size_t>(at)]), sum);
      }
      ASSERT_EQ(c[static_cast<std::size_t>(row * test.n + column)], sum) << row << ", " << column;
    }
  }
}

TEST_P(TileMatmulTest, BothWaysAgreeWithinRounding) {
  Seeded seeded;
  const Case test = GetParam();
  const auto a = numbers(m * k, seeded);
  const auto b = numbers(k * test.n, seeded);
  const std::vector<float> widened = product(Bf16Product::widened, test, a, b);
  const std::vector<float> pairs = product(Bf16Product::pairs, test, a, b);
  for (std::size_t i = 0; i < pairs.size(); ++i) ASSERT_NEAR(pairs[i], widened[i], 1e-4) << i;
}

INSTANTIATE_TEST_SUITE_P(Shapes, TileMatmulTest,
                         testing::Values(Case{100, false}, Case{100, true}, Case{128, false}, Case{64, true}),
                         [](const testing::TestParamInfo<Case>& test) {
                           return std::to_string(test.param.n) + (test.param.transposed_b ? "_transposed" : "");
                         });

}  // namespace
}  // namespace spillway
