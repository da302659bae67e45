// Sixteen virtual lanes in GCC's portable vectors. A kernel written with them is compiled once for each named target
// (one 512-bit register, two of 256 or four of 128 bits), and since every operation is an IEEE add, multiply, divide or
// square root of one lane, and contraction is off, all targets give the same bits. `exp` alone, and what is made of it,
// has fused multiply-adds where there are any: the baseline differs there.
//
// Use only inside kernel*.cpp, within `namespace spillway::SPILLWAY_TARGET`.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#endif

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

// Each element as an unsigned number of 32 bits.
SPILLWAY_INLINE u32x16 extended(u16x16 value) {
#ifdef __AVX512F__
  // One instruction, for which GCC 12 takes five (and warns of the intrinsic without a mask).
  return reinterpret_cast<u32x16>(_mm512_maskz_cvtepu16_epi32(0xffff, reinterpret_cast<__m256i>(value)));
#else
  return __builtin_convertvector(value, u32x16);
#endif
}

SPILLWAY_INLINE u16x16 lower_halves(u32x16 value) {
#ifdef __AVX512F__
  return reinterpret_cast<u16x16>(_mm512_maskz_cvtepi32_epi16(0xffff, reinterpret_cast<__m512i>(value)));
#else
  return __builtin_convertvector(value, u16x16);
#endif
}

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

// `yes` where a lane of `value` is NaN.
SPILLWAY_INLINE u32x16 choose_where_nan(f32x16 value, u32x16 yes, u32x16 no) {
#ifdef __AVX512F__
  const auto lanes_of = [](auto v) { return reinterpret_cast<__m512i>(v); };
  const __mmask16 nan =
      _mm512_cmp_ps_mask(reinterpret_cast<__m512>(value), reinterpret_cast<__m512>(value), _CMP_UNORD_Q);
  return reinterpret_cast<u32x16>(_mm512_mask_mov_epi32(lanes_of(no), nan, lanes_of(yes)));
#else
  const u32x16 nan = where_nan(bits(value));
  return (yes & nan) | (no & ~nan);
#endif
}

SPILLWAY_INLINE f32x16 load(const float* from) {
  f32x16 out;
  std::memcpy(&out, from, sizeof out);
  return out;
}
SPILLWAY_INLINE f32x16 load(const bf16_t* from) {
  u16x16 half;
  std::memcpy(&half, from, sizeof half);
  return from_bits(extended(half) << 16);
}
SPILLWAY_INLINE void store(float* to, f32x16 value) { std::memcpy(to, &value, sizeof value); }
// The rounding of round_bf16: to nearest, ties to even, NaN stays NaN.
SPILLWAY_INLINE u32x16 bf16_bits(f32x16 value) {
  const u32x16 u = bits(value);
  const u32x16 rounded = (u + 0x7fffU + ((u >> 16) & 1U)) >> 16;
  return choose_where_nan(value, (u >> 16) | 0x40U, rounded);
}
SPILLWAY_INLINE f32x16 rounded_to_bf16(f32x16 value) { return from_bits(bf16_bits(value) << 16); }
SPILLWAY_INLINE void store(bf16_t* to, f32x16 value) {
  const u16x16 half = lower_halves(bf16_bits(value));
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

// What one register of the target holds: wider vectors are kept in memory between operations.
#if defined(__AVX512F__)
constexpr int register_bytes = 64;
#elif defined(__AVX2__)
constexpr int register_bytes = 32;
#else
constexpr int register_bytes = 16;
#endif
using Register = float __attribute__((vector_size(register_bytes)));
using RegisterBits = std::uint32_t __attribute__((vector_size(register_bytes)));

// a * b + c, rounded once; twice on the baseline, which has no instruction for it.
SPILLWAY_INLINE Register fma(Register a, Register b, Register c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

// Range reduction to [-ln2/2, ln2/2] and a polynomial.
SPILLWAY_INLINE Register exp_of_part(Register x) {
  const Register zero = {};
  const auto below = x < -87.33654F;
  const Register clamped = below ? zero : x;
  const Register shifter = zero + 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const Register shifted = fma(clamped, zero + 1.44269504088896341F, shifter);
  const Register n = shifted - shifter;
  const Register r = fma(n, zero + 2.12194440e-4F, fma(n, zero - 0.693359375F, clamped));
  Register p = zero + 1.9875691500e-4F;
  for (const float next : {1.3981999507e-3F, 8.3334519073e-3F, 4.1665795894e-2F, 1.6666665459e-1F, 5.0000001201e-1F}) {
    p = fma(p, r, zero + next);
  }
  const Register y = fma(p, r * r, r) + 1.0F;
  // The low bits of `shifted` are n; y is near 1, so n goes into its exponent by addition.
  const RegisterBits scaled = reinterpret_cast<RegisterBits>(y) + (reinterpret_cast<RegisterBits>(shifted) << 23);
  const Register result = below ? zero : reinterpret_cast<Register>(scaled);
  // NOLINTNEXTLINE(misc-redundant-expression): where it is NaN
  return x != x ? x : result;
}

// e^x to about 2 ulp for x of at most about 1, as in a softmax; 0 below -87.3; NaN stays NaN.
SPILLWAY_INLINE f32x16 exp_below_one(f32x16 x) {
  Register parts[sizeof x / register_bytes];
  std::memcpy(parts, &x, sizeof x);
  for (Register& part : parts) part = exp_of_part(part);
  std::memcpy(&x, parts, sizeof x);
  return x;
}

// 1 / (1 + e^-x), from e^-|x|.
SPILLWAY_INLINE f32x16 sigmoid(f32x16 x) {
  const f32x16 e = exp_below_one(from_bits(bits(x) | 0x80000000U));
  return choose(where_negative(x), e, splat(1.0F)) / (e + 1.0F);
}

}  // namespace spillway::SPILLWAY_TARGET
