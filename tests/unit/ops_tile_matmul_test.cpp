#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/matmul/tile_matmul.h"
#include "ops_harness.h"

namespace spillway {
namespace {

using ops_test::Seeded;

constexpr std::int64_t tile_m = 133;  // whole tiles, a part of one, and more than two panels
constexpr Bf16Product all_ways[] = {Bf16Product::pairs, Bf16Product::widened, Bf16Product::amx};

struct TileCase {
  std::int64_t n;  // with AVX-512 a multiple of 64 but not of 48 has tiles of 6 rows
  bool transposed_b;
  std::int64_t k = 150;  // above 768 numbers, or pairs, in several chunks everywhere
};

std::vector<bf16_t> numbers(std::int64_t count, Seeded& seeded) {
  std::vector<bf16_t> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(round_bf16(static_cast<float>(ops_test::random_number(seeded.rng))));
  }
  return values;
}

// operands.a is the whole of A.
void multiply_into(void* c, const TileMatmul& tiles, const ScratchLayout& layout, const MatmulShape& shape,
                   TileMatmul::Operands operands) {
  std::vector<std::byte> scratch(static_cast<std::size_t>(layout.bytes() + 64));
  const auto misaligned = reinterpret_cast<std::uintptr_t>(scratch.data()) % 64;
  const auto* const a = static_cast<const bf16_t*>(operands.a);
  operands.c = c;
  for (std::int64_t task = 0; task < tiles.tasks(); ++task) {
    operands.a = a + tiles.part(task).row * shape.k;
    tiles.run(task, operands, std::span(scratch).subspan((64 - misaligned) % 64));
  }
}

std::vector<float> multiply(const TileMatmul& tiles, const ScratchLayout& layout, const MatmulShape& shape,
                            const TileMatmul::Operands& operands) {
  std::vector<float> c(static_cast<std::size_t>(shape.m * shape.n));
  multiply_into(c.data(), tiles, layout, shape, operands);
  return c;
}

class TileMatmulTest : public testing::TestWithParam<TileCase> {
 protected:
  void SetUp() override {
    if (matmul_tile_isa() == Isa::baseline) GTEST_SKIP() << "products of this processor go to the library";
  }
  std::vector<float> product(Bf16Product how, Triangle triangle = Triangle::none) const;

  Seeded seeded_;
  TileCase test_ = GetParam();
  std::vector<bf16_t> a_ = numbers(tile_m * test_.k, seeded_);
  std::vector<bf16_t> b_ = numbers(test_.k * test_.n, seeded_);
};

std::vector<float> TileMatmulTest::product(Bf16Product how, Triangle triangle) const {
  const MatmulShape shape{
      .m = tile_m, .n = test_.n, .k = test_.k, .in = DType::bf16, .transposed_b = test_.transposed_b};
  ScratchLayout layout;
  const TileMatmul tiles(shape, layout, how);
  return multiply(tiles, layout, shape, {.a = a_.data(), .b = b_.data(), .triangle = triangle});
}

// Each product is exact in f32, so only the order of the sums matters.
TEST_P(TileMatmulTest, WidenedElementsAreSumsInTheOrderOfK) {
  const std::vector<float> c = product(Bf16Product::widened);
  for (std::int64_t row = 0; row < tile_m; ++row) {
    for (std::int64_t column = 0; column < test_.n; ++column) {
      float sum = 0;
      for (std::int64_t step = 0; step < test_.k; ++step) {
        const std::int64_t at = test_.transposed_b ? column * test_.k + step : step * test_.n + column;
        sum = std::fma(widen(a_[static_cast<std::size_t>(row * test_.k + step)]),
                       widen(b_[static_cast<std::size_t>(at)]), sum);
      }
      ASSERT_EQ(c[static_cast<std::size_t>(row * test_.n + column)], sum) << row << ", " << column;
    }
  }
}

// One instruction takes sixteen pairs: the even products in their order, the odd ones, then both sums are added.
TEST_P(TileMatmulTest, AmxElementsAreSumsOfSixteenPairs) {
  if (!matmul_has(Bf16Product::amx)) GTEST_SKIP() << "this processor has no AMX";
  constexpr std::int64_t at_once = 32;
  const std::vector<float> c = product(Bf16Product::amx);
  for (std::int64_t row = 0; row < tile_m; ++row) {
    for (std::int64_t column = 0; column < test_.n; ++column) {
      float sum = 0;
      for (std::int64_t first = 0; first < test_.k; first += at_once) {
        float parts[2] = {};
        for (std::int64_t step = first; step < std::min(test_.k, first + at_once); ++step) {
          const std::int64_t at = test_.transposed_b ? column * test_.k + step : step * test_.n + column;
          parts[step % 2] = std::fma(widen(a_[static_cast<std::size_t>(row * test_.k + step)]),
                                     widen(b_[static_cast<std::size_t>(at)]), parts[step % 2]);
        }
        sum += parts[0] + parts[1];
      }
      ASSERT_EQ(c[static_cast<std::size_t>(row * test_.n + column)], sum) << row << ", " << column;
    }
  }
}

// Of products in one chunk.
class TileMatmulTriangles : public TileMatmulTest {
 protected:
  void expect_parts_of_c(Bf16Product how) const;
};

void TileMatmulTriangles::expect_parts_of_c(Bf16Product how) const {
  const std::vector<float> whole = product(how);
  const std::vector<float> lower = product(how, Triangle::c_up_to_row);
  const std::vector<float> upper = product(how, Triangle::c_from_row);
  std::int64_t left_out_above = 0;
  std::int64_t left_out_below = 0;
  for (std::int64_t row = 0; row < tile_m; ++row) {
    for (std::int64_t column = 0; column < test_.n; ++column) {
      const auto at = static_cast<std::size_t>(row * test_.n + column);
      ASSERT_EQ(column <= row ? lower[at] : upper[at], whole[at]) << row << ", " << column;
      if (column > row && lower[at] != whole[at]) ++left_out_above;
      if (column < row && upper[at] != whole[at]) ++left_out_below;
    }
  }
  const bool wide_panels = how != Bf16Product::amx && matmul_tile_isa() == Isa::avx512;
  EXPECT_EQ(left_out_above > 0, test_.n > (wide_panels ? 64 : 32)) << "more than a panel";
  EXPECT_GT(left_out_below, 0);
}

// What is left out is what nobody reads, or zeros.
TEST_P(TileMatmulTriangles, HaveTheBitsOfTheWhole) {
  for (const Bf16Product how : all_ways) {
    if (matmul_has(how)) expect_parts_of_c(how);
  }
  for (const bool up_to_row : {true, false}) {
    const std::vector<bf16_t> all = a_;
    for (std::int64_t row = 0; row < tile_m; ++row) {
      for (std::int64_t k = 0; k < test_.k; ++k) {
        if (up_to_row ? k > row : k < row) a_[static_cast<std::size_t>(row * test_.k + k)] = bf16_t{};
      }
    }
    const Triangle triangle = up_to_row ? Triangle::a_up_to_row : Triangle::a_from_row;
    for (const Bf16Product how : all_ways) {
      if (matmul_has(how)) {
        EXPECT_EQ(product(how, triangle), product(how));
      }
    }
    a_ = all;
  }
}

// Of rows that lie apart, too.
TEST_P(TileMatmulTest, BPackedAheadGivesTheSameBits) {
  for (const Bf16Product how : all_ways) {
    if (!matmul_has(how)) continue;
    const MatmulShape shape{
        .m = tile_m, .n = test_.n, .k = test_.k, .in = DType::bf16, .transposed_b = test_.transposed_b};
    ScratchLayout layout;
    const TileMatmul tiles(shape, layout, how);
    const std::int64_t columns = test_.transposed_b ? test_.k : test_.n;
    const std::int64_t stride = columns + 6 + columns % 2;
    std::vector<bf16_t> apart(static_cast<std::size_t>(test_.k * test_.n / columns * stride), round_bf16(7));
    for (std::int64_t i = 0; i < test_.k * test_.n; ++i)
      apart[static_cast<std::size_t>(i / columns * stride + i % columns)] = b_[static_cast<std::size_t>(i)];
    std::vector<std::uint32_t> packed(static_cast<std::size_t>(tiles.packed_b_bytes() / 4), 0xffffffffU);
    tiles.pack_b(apart.data(), stride, packed.data());
    EXPECT_TRUE(multiply(tiles, layout, shape, {.a = a_.data(), .packed_b = packed.data()}) == product(how))
        << static_cast<int>(how);
  }
}

TEST_P(TileMatmulTest, AllWaysAgreeWithinRounding) {
  if (!matmul_has_bf16()) GTEST_SKIP() << "this processor has no AVX512_BF16";
  const std::vector<float> widened = product(Bf16Product::widened);
  for (const Bf16Product how : {Bf16Product::pairs, Bf16Product::amx}) {
    if (!matmul_has(how)) continue;
    const std::vector<float> others = product(how);
    for (std::size_t i = 0; i < others.size(); ++i) ASSERT_NEAR(others[i], widened[i], test_.k > 768 ? 1e-3 : 1e-4);
  }
}

#if defined(__SANITIZE_ADDRESS__)
// Tiles themselves are compiled without.
TEST(TileMatmulDeathTest, TheAddressSanitizerSeesTheEndsOfC) {
  if (matmul_tile_isa() == Isa::baseline) GTEST_SKIP() << "products of this processor go to the library";
  Seeded seeded;
  const MatmulShape shape{.m = 16, .n = 50, .k = 32, .in = DType::bf16};
  ScratchLayout layout;
  const TileMatmul tiles(shape, layout);
  const std::vector<bf16_t> a = numbers(shape.m * shape.k, seeded);
  const std::vector<bf16_t> b = numbers(shape.k * shape.n, seeded);
  std::vector<float> wanting(static_cast<std::size_t>(shape.m * shape.n - 1));
  EXPECT_DEATH(multiply_into(wanting.data(), tiles, layout, shape, {.a = a.data(), .b = b.data()}),
               "heap-buffer-overflow");
}
#endif

// Parts of 520 rows or of 264, and of 260, with sums that wait between chunks.
TEST(TileMatmulGrid, BitsDoNotDependOnTheParts) {
  if (matmul_tile_isa() == Isa::baseline) GTEST_SKIP() << "products of this processor go to the library";
  const MatmulShape shape{.m = 520, .n = 1350, .k = 1600, .in = DType::bf16};
  Seeded seeded;
  const std::vector<bf16_t> a = numbers(shape.m * shape.k, seeded);
  const std::vector<bf16_t> b = numbers(shape.k * shape.n, seeded);
  const auto exact = [&](std::int64_t row, std::int64_t column) {
    double sum = 0;
    for (std::int64_t k = 0; k < shape.k; ++k) {
      sum += double{widen(a[static_cast<std::size_t>(row * shape.k + k)])} *
             double{widen(b[static_cast<std::size_t>(k * shape.n + column)])};
    }
    return sum;
  };
  for (const Bf16Product how : all_ways) {
    if (!matmul_has(how)) continue;
    ScratchLayout layout;
    const TileMatmul tiles(shape, layout, how);
    EXPECT_EQ(tiles.part(0).rows > 512, how == Bf16Product::amx);
    const std::vector<float> result = multiply(tiles, layout, shape, {.a = a.data(), .b = b.data()});
    MatmulShape half = shape;
    half.m /= 2;
    ScratchLayout layout_of_half;
    const TileMatmul tiles_of_half(half, layout_of_half, how);
    EXPECT_NE(tiles.part(0).rows, tiles_of_half.part(0).rows);
    const std::vector<float> first = multiply(tiles_of_half, layout_of_half, half, {.a = a.data(), .b = b.data()});
    EXPECT_TRUE(std::equal(first.begin(), first.end(), result.begin()));
    for (const std::int64_t row : {std::int64_t{0}, std::int64_t{511}, std::int64_t{513}, shape.m - 1}) {
      for (const std::int64_t column : {std::int64_t{0}, std::int64_t{700}, shape.n - 1}) {
        EXPECT_NEAR(result[static_cast<std::size_t>(row * shape.n + column)], exact(row, column), 2e-3);
      }
    }
  }
}

struct alignas(64) Line {
  std::byte bytes[64];
};

// Of more than 2 MiB, which AMX writes past the caches where its lines are whole: the first rows have the bits of a
// product of their own.
void expect_bits_of_fewer_rows(const MatmulShape& whole, Bf16Product how, Seeded& seeded) {
  constexpr std::int64_t few = 150;
  const std::vector<bf16_t> a = numbers(whole.m * whole.k, seeded);
  const std::vector<bf16_t> b = numbers(whole.k * whole.n, seeded);
  const std::vector<bf16_t> bias = numbers(whole.n, seeded);
  const std::int64_t row_bytes = whole.n * size_of(whole.out);
  const std::vector<bf16_t> before = numbers(whole.m * row_bytes / 2, seeded);
  std::vector<Line> lines(static_cast<std::size_t>(divide_up(whole.m * row_bytes, std::int64_t{sizeof(Line)})));
  std::byte* const c = lines.front().bytes;
  std::vector<std::vector<std::byte>> results;
  for (const std::int64_t rows : {whole.m, few}) {
    MatmulShape shape = whole;
    shape.m = rows;
    ScratchLayout layout;
    const TileMatmul tiles(shape, layout, how);
    std::memcpy(c, before.data(), before.size() * sizeof(bf16_t));
    multiply_into(c, tiles, layout, shape,
                  {.a = a.data(), .b = b.data(), .bias = bias.data(), .sum = reinterpret_cast<const float*>(c)});
    results.emplace_back(c, c + few * row_bytes);
  }
  EXPECT_TRUE(results[0] == results[1]) << whole.n << " columns of " << name_of(whole.out) << ", "
                                        << static_cast<int>(how) << ", " << whole.accumulate;
}

TEST(TileMatmulGrid, BitsDoNotDependOnTheSizeOfC) {
  if (matmul_tile_isa() == Isa::baseline) GTEST_SKIP() << "products of this processor go to the library";
  Seeded seeded;
  for (const Bf16Product how : all_ways) {
    if (!matmul_has(how)) continue;
    for (const std::int64_t n : {1600, 1616, 1601}) {
      MatmulShape shape{.m = 1000, .n = n, .k = 448, .in = DType::bf16};
      expect_bits_of_fewer_rows(shape, how, seeded);
      shape.accumulate = true;
      expect_bits_of_fewer_rows(shape, how, seeded);
      expect_bits_of_fewer_rows(
          {.m = 1000, .n = n, .k = 448, .in = DType::bf16, .out = DType::bf16, .has_bias = true, .bias = DType::bf16},
          how, seeded);
    }
  }
}

std::string name_of_case(const testing::TestParamInfo<TileCase>& test) {
  return "columns_" + std::to_string(test.param.n) + (test.param.transposed_b ? "_transposed" : "") +
         (test.param.k > 768 ? "_k_" + std::to_string(test.param.k) : "");
}

INSTANTIATE_TEST_SUITE_P(Shapes, TileMatmulTest,
                         testing::Values(TileCase{100, false}, TileCase{100, true}, TileCase{128, false},
                                         TileCase{64, true}, TileCase{107, false}, TileCase{107, true},
                                         TileCase{100, false, 1100}, TileCase{100, false, 1700},
                                         TileCase{130, true, 1700}),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Shapes, TileMatmulTriangles,
                         testing::Values(TileCase{100, false}, TileCase{100, true}, TileCase{128, false},
                                         TileCase{64, true}),
                         name_of_case);

}  // namespace
}  // namespace spillway
