#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/matmul/tile_matmul.h"
#include "ops_harness.h"

namespace spillway {
namespace {

using ops_test::Seeded;

constexpr std::int64_t tile_m = 37;  // whole tiles and a part of one
constexpr std::int64_t tile_k = 150;

struct TileCase {
  std::int64_t n;  // a multiple of 64 but not of 48 has tiles of 6 rows
  bool transposed_b;
};

std::vector<bf16_t> numbers(std::int64_t count, Seeded& seeded) {
  std::vector<bf16_t> values;
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(round_bf16(normal(seeded.rng)));
  return values;
}

class TileMatmulTest : public testing::TestWithParam<TileCase> {
 protected:
  void SetUp() override {
    if (!matmul_has_bf16()) GTEST_SKIP() << "this processor has no AVX512_BF16";
  }
  std::vector<float> product(Bf16Product how) const;

  Seeded seeded_;
  TileCase test_ = GetParam();
  std::vector<bf16_t> a_ = numbers(tile_m * tile_k, seeded_);
  std::vector<bf16_t> b_ = numbers(tile_k * test_.n, seeded_);
};

std::vector<float> TileMatmulTest::product(Bf16Product how) const {
  const MatmulShape shape{
      .m = tile_m, .n = test_.n, .k = tile_k, .in = DType::bf16, .transposed_b = test_.transposed_b};
  ScratchLayout layout;
  const TileMatmul tiles(shape, layout, how);
  std::vector<std::byte> scratch(static_cast<std::size_t>(layout.bytes() + 64));
  const auto misaligned = reinterpret_cast<std::uintptr_t>(scratch.data()) % 64;
  std::vector<float> c(static_cast<std::size_t>(tile_m * test_.n));
  for (std::int64_t task = 0; task < tiles.tasks(); ++task) {
    const MatmulPart part = tiles.part(task);
    tiles.run(task, {.a = a_.data() + part.row * tile_k, .b = b_.data(), .c = c.data()},
              std::span(scratch).subspan((64 - misaligned) % 64));
  }
  return c;
}

// Each product is exact in f32, so only the order of the sums matters.
TEST_P(TileMatmulTest, WidenedElementsAreSumsInTheOrderOfK) {
  const std::vector<float> c = product(Bf16Product::widened);
  for (std::int64_t row = 0; row < tile_m; ++row) {
    for (std::int64_t column = 0; column < test_.n; ++column) {
      float sum = 0;
      for (std::int64_t step = 0; step < tile_k; ++step) {
        const std::int64_t at = test_.transposed_b ? column * tile_k + step : step * test_.n + column;
        sum = std::fma(widen(a_[static_cast<std::size_t>(row * tile_k + step)]),
                       widen(b_[static_cast<std::size_t>(at)]), sum);
      }
      ASSERT_EQ(c[static_cast<std::size_t>(row * test_.n + column)], sum) << row << ", " << column;
    }
  }
}

TEST_P(TileMatmulTest, BothWaysAgreeWithinRounding) {
  const std::vector<float> widened = product(Bf16Product::widened);
  const std::vector<float> pairs = product(Bf16Product::pairs);
  for (std::size_t i = 0; i < pairs.size(); ++i) ASSERT_NEAR(pairs[i], widened[i], 1e-4) << i;
}

INSTANTIATE_TEST_SUITE_P(Shapes, TileMatmulTest,
                         testing::Values(TileCase{100, false}, TileCase{100, true}, TileCase{128, false},
                                         TileCase{64, true}),
                         [](const testing::TestParamInfo<TileCase>& test) {
                           return std::to_string(test.param.n) + (test.param.transposed_b ? "_transposed" : "");
                         });

}  // namespace
}  // namespace spillway
