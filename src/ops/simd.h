// Sixteen virtual lanes in GCC's portable vectors. A kernel written with them is compiled once for each named target
// (one 512-bit register, two of 256 or four of 128 bits), and since every operation is an IEEE add, multiply, divide or
// square root of one lane, and contraction is off, all targets give the same bits.
//
// Use only inside kernel*.cpp, within `namespace spillway::SPILLWAY_TARGET`.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"

#ifndef SPILLWAY_TARGET
#define SPILLWAY_TARGET baseline
#endif

#define SPILLWAY_INLINE [[gnu::always_inline]] inline

namespace spillway::SPILLWAY_TARGET {

constexpr std::int64_t lanes = 16;

using f32x16 = float __attribute__((vector_size(64)));
using f64x16 = double __attribute__((vector_size(128)));
using i32x16 = std::int32_t __attribute__((vector_size(64)));
using u32x16 = std::uint32_t __attribute__((vector_size(64)));
using u16x16 = std::uint16_t __attribute__((vector_size(32)));

SPILLWAY_INLINE f32x16 splat(float value) { return f32x16{} + value; }
SPILLWAY_INLINE u32x16 bits(f32x16 value) {
  u32x16 out;
  std::memcpy(&out, &value, sizeof out);
  return out;
}
SPILLWAY_INLINE f32x16 from_bits(u32x16 value) {
  f32x16 out;
  std::memcpy(&out, &value, sizeof out);
  return out;
}

// Masks of whole lanes, by integer arithmetic: GCC 12 compares vectors wider than a register element by element.
SPILLWAY_INLINE u32x16 where_negative(f32x16 value) { return 0U - (bits(value) >> 31); }
SPILLWAY_INLINE u32x16 where_nan(u32x16 pattern) { return 0U - ((0x7f800000U - (pattern & 0x7fffffffU)) >> 31); }
SPILLWAY_INLINE f32x16 choose(u32x16 where, f32x16 yes, f32x16 no) {
  return from_bits((bits(yes) & where) | (bits(no) & ~where));
}

SPILLWAY_INLINE f32x16 load(const float* from) {
  f32x16 out;
  std::memcpy(&out, from, sizeof out);
  return out;
}
SPILLWAY_INLINE f32x16 load(const bf16_t* from) {
  u16x16 half;
  std::memcpy(&half, from, sizeof half);
  return from_bits(__builtin_convertvector(half, u32x16) << 16);
}
SPILLWAY_INLINE void store(float* to, f32x16 value) { std::memcpy(to, &value, sizeof value); }
// The rounding of round_bf16: to nearest, ties to even, NaN stays NaN.
SPILLWAY_INLINE u32x16 bf16_bits(f32x16 value) {
  const u32x16 u = bits(value);
  const u32x16 rounded = (u + 0x7fffU + ((u >> 16) & 1U)) >> 16;
  const u32x16 quiet = (u >> 16) | 0x40U;
  const u32x16 nan = where_nan(u);
  return (quiet & nan) | (rounded & ~nan);
}
SPILLWAY_INLINE f32x16 rounded_to_bf16(f32x16 value) { return from_bits(bf16_bits(value) << 16); }
SPILLWAY_INLINE void store(bf16_t* to, f32x16 value) {
  const u16x16 half = __builtin_convertvector(bf16_bits(value), u16x16);
  std::memcpy(to, &half, sizeof half);
}

// The first `count` lanes, the rest zero; and storing only those.
template <typename T>
SPILLWAY_INLINE f32x16 load_first(const T* from, std::int64_t count) {
  T padded[lanes] = {};
  std::memcpy(padded, from, static_cast<std::size_t>(count) * sizeof(T));
  return load(padded);
}
template <typename T>
SPILLWAY_INLINE void store_first(T* to, f32x16 value, std::int64_t count) {
  T padded[lanes];
  store(padded, value);
  std::memcpy(to, padded, static_cast<std::size_t>(count) * sizeof(T));
}

SPILLWAY_INLINE f32x16 sqrt(f32x16 value) {
  f32x16 out;
  for (int i = 0; i < lanes; ++i) out[i] = __builtin_sqrtf(value[i]);
  return out;
}
SPILLWAY_INLINE f32x16 max(f32x16 a, f32x16 b) { return choose(where_negative(a - b), b, a); }
SPILLWAY_INLINE f32x16 min(f32x16 a, f32x16 b) { return choose(where_negative(a - b), a, b); }
SPILLWAY_INLINE f32x16 abs(f32x16 value) { return from_bits(bits(value) & 0x7fffffffU); }

// The lanes added in a fixed tree: halves onto each other.
SPILLWAY_INLINE float sum(f32x16 value) {
  float lane[lanes];
  store(lane, value);
  for (int width = 8; width >= 1; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
  }
  return lane[0];
}
SPILLWAY_INLINE float largest(f32x16 value) {
  float lane[lanes];
  store(lane, value);
  for (int width = 8; width >= 1; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] = lane[i] > lane[i + width] ? lane[i] : lane[i + width];
  }
  return lane[0];
}

// e^x to about 2 ulp; 0 below -87.3, infinity above 88.7. Range reduction to [-ln2/2, ln2/2] and a polynomial.
SPILLWAY_INLINE f32x16 exp(f32x16 x) {
  const u32x16 below = where_negative(x + 87.33654F);
  const u32x16 above = where_negative(88.72283F - x);
  const f32x16 clamped = choose(below, splat(-87.33654F), choose(above, splat(88.72283F), x));
  const f32x16 shifter = splat(12582912.0F);  // 1.5 * 2^23: adding it rounds to an integer
  const f32x16 n = (clamped * 1.44269504088896341F + shifter) - shifter;
  const f32x16 r = (clamped - n * 0.693359375F) - n * -2.12194440e-4F;
  f32x16 p = splat(1.9875691500e-4F);
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  const f32x16 y = p * r * r + r + 1.0F;
  // 2^n in two factors, so that n = 128 does not overflow the exponent field.
  const i32x16 whole = __builtin_convertvector(n, i32x16);
  const i32x16 half = whole >> 1;
  const f32x16 a = from_bits(__builtin_convertvector(half + 127, u32x16) << 23);
  const f32x16 b = from_bits(__builtin_convertvector(whole - half + 127, u32x16) << 23);
  const f32x16 result = y * a * b;
  const f32x16 bounded = choose(below, splat(0.0F), choose(above, splat(__builtin_inff()), result));
  return choose(where_nan(bits(x)), x, bounded);  // NaN stays NaN
}

// The same for x of at most about 1, as in a softmax: 0 below -87.3; NaN stays NaN.
SPILLWAY_INLINE f32x16 exp_below_one(f32x16 x) {
  const u32x16 below = where_negative(x + 87.33654F);
  const f32x16 clamped = choose(below, splat(0.0F), x);
  const f32x16 shifter = splat(12582912.0F);
  const f32x16 shifted = clamped * 1.44269504088896341F + shifter;
  const f32x16 n = shifted - shifter;
  const f32x16 r = (clamped - n * 0.693359375F) - n * -2.12194440e-4F;
  f32x16 p = splat(1.9875691500e-4F);
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  const f32x16 y = p * r * r + r + 1.0F;
  // The low bits of `shifted` are n; y is near 1, so n goes into its exponent by addition.
  const u32x16 scaled = bits(y) + (bits(shifted) << 23);
  return choose(where_nan(bits(x)), x, from_bits(scaled & ~below));  // inf - inf is a NaN whose sign is set
}

SPILLWAY_INLINE f32x16 tanh(f32x16 x) {
  const f32x16 e = exp(abs(x) * -2.0F);
  const f32x16 magnitude = (splat(1.0F) - e) / (splat(1.0F) + e);
  return from_bits(bits(magnitude) | (bits(x) & 0x80000000U));
}
SPILLWAY_INLINE f32x16 sigmoid(f32x16 x) { return splat(1.0F) / (splat(1.0F) + exp(-x)); }

}  // namespace spillway::SPILLWAY_TARGET
