// Element types of tensors, files and values, with their sizes and the scalar conversions between them.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace spillway {

enum class DType : std::uint8_t { f64, f32, f16, bf16, i64, i32, u32, u16, u8 };

constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32:
    case DType::u32: return 4;
    case DType::f16:
    case DType::bf16:
    case DType::u16: return 2;
    case DType::u8: return 1;
  }
  return 0;
}

// Lower-case name: "f32", "bf16", …
std::string_view name_of(DType dtype);

// A bfloat16 is the high half of an IEEE binary32.
using bf16_t = std::uint16_t;

constexpr float widen(bf16_t value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16); }

// Round to nearest, ties to even; NaN stays NaN. The rounding of every activation and gradient (not of weights: see
// split_master).
constexpr bf16_t round_bf16(float value) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  if ((u & 0x7fffffffU) > 0x7f800000U) return static_cast<bf16_t>((u >> 16) | 0x40U);
  return static_cast<bf16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
}

// A bf16 weight and the 16 bits that restore its fp32 master exactly: hi is the nearest bf16, ties away from zero;
// master = (hi << 16) + int16(lo), modulo 2^32. Holds for all 2^32 bit patterns.
struct SplitMaster {
  bf16_t hi;
  std::uint16_t lo;
};

constexpr SplitMaster split_master(float master) {
  const auto u = std::bit_cast<std::uint32_t>(master);
  return {static_cast<bf16_t>((u + 0x8000U) >> 16), static_cast<std::uint16_t>(u & 0xffffU)};
}

constexpr float join_master(SplitMaster split) {
  const auto low = static_cast<std::uint32_t>(static_cast<std::int32_t>(static_cast<std::int16_t>(split.lo)));
  return std::bit_cast<float>((static_cast<std::uint32_t>(split.hi) << 16) + low);
}

// IEEE binary16, for reading and writing files.
float widen_f16(std::uint16_t value);
std::uint16_t round_f16(float value);

}  // namespace spillway
