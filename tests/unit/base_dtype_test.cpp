#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "base/dtype.h"

namespace spillway {
namespace {

// What IEEE 754 says a binary16 is worth.
double worth_of_f16(std::uint16_t code) {
  const int exponent = (code >> 10) & 31;
  const double mantissa = code & 1023;
  const double magnitude = exponent == 0    ? std::ldexp(mantissa, -24)
                           : exponent == 31 ? (mantissa == 0 ? INFINITY : NAN)
                                            : std::ldexp(1024 + mantissa, exponent - 25);
  return (code & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(DType, WidensEveryF16) {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const auto half = static_cast<std::uint16_t>(code);
    const double expected = worth_of_f16(half);
    const float wide = widen_f16(half);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(wide)) << code;
    } else {
      ASSERT_EQ(static_cast<double>(wide), expected) << code;
      ASSERT_EQ(std::signbit(wide), std::signbit(expected)) << code;
    }
  }
}

TEST(DType, EveryF16SurvivesTheWayThere) {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const auto half = static_cast<std::uint16_t>(code);
    if (std::isnan(widen_f16(half))) {
      ASSERT_TRUE(std::isnan(widen_f16(round_f16(widen_f16(half))))) << code;
    } else {
      ASSERT_EQ(round_f16(widen_f16(half)), half);
    }
  }
}

// Between each two neighbours: below the middle, the middle (to the even one), above it.
TEST(DType, RoundsToTheNearestF16) {
  for (std::uint32_t code = 0; code < 0x7C00; ++code) {
    const auto low = static_cast<std::uint16_t>(code);
    const auto high = static_cast<std::uint16_t>(code + 1);
    const double high_worth = high == 0x7C00 ? 65536.0 : worth_of_f16(high);
    const auto middle = static_cast<float>((worth_of_f16(low) + high_worth) / 2);
    ASSERT_EQ(round_f16(middle), (low & 1) == 0 ? low : high) << code;
    ASSERT_EQ(round_f16(std::nextafter(middle, 0.0F)), low) << code;
    ASSERT_EQ(round_f16(std::nextafter(middle, INFINITY)), high) << code;
    ASSERT_EQ(round_f16(-middle), 0x8000 | ((low & 1) == 0 ? low : high)) << code;
  }
  EXPECT_EQ(round_f16(1e30F), 0x7C00);
  EXPECT_EQ(round_f16(-INFINITY), 0xFC00);
  EXPECT_EQ(round_f16(std::numeric_limits<float>::denorm_min()), 0);
}

TEST(DType, Bf16RoundTripsAndRoundsToEven) {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const auto value = static_cast<bf16_t>(code);
    if (std::isnan(widen(value))) {
      ASSERT_TRUE(std::isnan(widen(round_bf16(widen(value))))) << code;
      continue;
    }
    ASSERT_EQ(round_bf16(widen(value)), value);
    if (std::isinf(widen(value))) continue;
    const std::uint32_t master = code << 16;
    const auto up = static_cast<bf16_t>(code + 1);
    ASSERT_EQ(round_bf16(std::bit_cast<float>(master | 0x7FFFU)), value);
    ASSERT_EQ(round_bf16(std::bit_cast<float>(master | 0x8000U)), (code & 1) == 0 ? value : up);
    ASSERT_EQ(round_bf16(std::bit_cast<float>(master | 0x8001U)), up);
  }
  EXPECT_TRUE(std::isnan(widen(round_bf16(std::bit_cast<float>(0x7F800001U)))));
}

void expect_split_restores(std::uint32_t bits) {
  const SplitMaster split = split_master(std::bit_cast<float>(bits));
  ASSERT_EQ(std::bit_cast<std::uint32_t>(join_master(split)), bits) << bits;
  // The weight is the nearest bf16, ties away from zero.
  const auto error = static_cast<std::int32_t>((static_cast<std::uint32_t>(split.hi) << 16) - bits);
  ASSERT_LE(error, 0x8000) << bits;
  ASSERT_GT(error, -0x8000) << bits;
}

// A share of all 2^32 masters: a prime stride visits every residue, and every low half of some high halves is added.
TEST(DType, SplitMasterRestoresEveryBit) {
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 251) {
    expect_split_restores(static_cast<std::uint32_t>(bits));
    if (HasFatalFailure()) return;
  }
  for (const std::uint32_t high : {0x0000U, 0x0001U, 0x3F80U, 0x7F7FU, 0x7F80U, 0x7FFFU, 0x8000U, 0xFF80U, 0xFFFFU}) {
    for (std::uint32_t low = 0; low < 0x10000; ++low) {
      expect_split_restores((high << 16) | low);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(DType, NamesAndSizesAgree) {
  constexpr std::array dtypes{DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64,
                              DType::i32, DType::u32, DType::u16, DType::u8};
  for (const DType dtype : dtypes) {
    const std::string_view name = name_of(dtype);
    const auto digits = name.find_first_of("0123456789");
    ASSERT_NE(digits, std::string_view::npos);
    EXPECT_EQ(std::stoll(std::string(name.substr(digits))), size_of(dtype) * 8) << name;
  }
}

}  // namespace
}  // namespace spillway
