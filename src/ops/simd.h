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

#include "base/dtype.h"
#include "ops/sixteen.h"

namespace spillway::SPILLWAY_TARGET {

// Masks of whole lanes.
SPILLWAY_INLINE u32x16 where_negative(f32x16 value) { return 0U - (bits(value) >> 31); }
SPILLWAY_INLINE u32x16 where_nan(u32x16 pattern) { return 0U - ((0x7f800000U - (pattern & 0x7fffffffU)) >> 31); }
SPILLWAY_INLINE f32x16 choose(u32x16 where, f32x16 yes, f32x16 no) {
  return from_bits((bits(yes) & where) | (bits(no) & ~where));
}

// `other`, but where a lane of `value` is NaN, that as a quiet one.
SPILLWAY_INLINE u32x16 keep_nan(f32x16 value, u32x16 other) {
#ifdef __AVX512F__
  const __m512i quiet_nan_alone = _mm512_set1_epi32(0x22);
  return by_registers(
      [&](Register part, RegisterBits kept) {
        return reinterpret_cast<RegisterBits>(
            _mm512_fixupimm_ps(reinterpret_cast<__m512>(kept), part, quiet_nan_alone, 0));
      },
      value, other);
#else
  const u32x16 nan = where_nan(bits(value));
  return ((bits(value) | 0x400000U) & nan) | (other & ~nan);
#endif
}

SPILLWAY_INLINE f32x16 load(const float* from) { return load_as(from); }
SPILLWAY_INLINE f32x16 load(const bf16_t* from) { return from_bits(extended(load_as(from)) << 16); }
SPILLWAY_INLINE void store(float* to, f32x16 value) { store_as(to, value); }
// The rounding of round_bf16, in the upper half: to nearest, ties to even, NaN stays NaN.
SPILLWAY_INLINE u32x16 bf16_above(f32x16 value) {
  const u32x16 u = bits(value);
  return keep_nan(value, u + 0x7fffU + ((u >> 16) & 1U));
}
SPILLWAY_INLINE f32x16 rounded_to_bf16(f32x16 value) { return from_bits(bf16_above(value) & 0xffff0000U); }
// Two vectors, one behind the other.
SPILLWAY_INLINE void store(float* to, f32x16 first, f32x16 second) {
  store(to, first);
  store(to + lanes, second);
}
#ifdef __AVX512BF16__
// The instructions round as bf16_above does, but for what is below the smallest normal number, which they take as zero.
SPILLWAY_INLINE bool any_subnormal(f32x16 value) { return _mm512_fpclass_ps_mask(value.part[0], 0x20) != 0; }
SPILLWAY_INLINE void store(bf16_t* to, f32x16 value) {
  if (any_subnormal(value)) [[unlikely]] {
    store_as(to, lower_halves(bf16_above(value) >> 16));
  } else {
    const __m256bh rounded = _mm512_cvtneps_pbh(value.part[0]);
    std::memcpy(to, &rounded, sizeof rounded);
  }
}
SPILLWAY_INLINE void store(bf16_t* to, f32x16 first, f32x16 second) {
  if (any_subnormal(first) || any_subnormal(second)) [[unlikely]] {
    store(to, first);
    store(to + lanes, second);
  } else {
    const __m512bh rounded = _mm512_cvtne2ps_pbh(second.part[0], first.part[0]);
    std::memcpy(to, &rounded, sizeof rounded);
  }
}
#else
SPILLWAY_INLINE void store(bf16_t* to, f32x16 value) { store_as(to, lower_halves(bf16_above(value) >> 16)); }
SPILLWAY_INLINE void store(bf16_t* to, f32x16 first, f32x16 second) {
#ifdef __AVX512BW__
  using u16x32 = std::uint16_t __attribute__((vector_size(64)));
  const u16x32 both =
      __builtin_shufflevector(reinterpret_cast<u16x32>(bf16_above(first).part[0]),
                              reinterpret_cast<u16x32>(bf16_above(second).part[0]), 1, 3, 5, 7, 9, 11, 13, 15, 17, 19,
                              21, 23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63);
  std::memcpy(to, &both, sizeof both);
#else
  store(to, first);
  store(to + lanes, second);
#endif
}
#endif

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
  return by_registers(
      [](Register part) -> Register {
#if defined(__AVX512F__)
        return _mm512_maskz_sqrt_ps(0xffff, part);
#elif defined(__AVX2__)
        return _mm256_sqrt_ps(part);
#else
        for (std::size_t i = 0; i < f32x16::part_lanes; ++i) part[i] = __builtin_sqrtf(part[i]);
        return part;
#endif
      },
      value);
}

// 0 where it is below the smallest normal number.
SPILLWAY_INLINE f32x16 flushed(f32x16 value) {
  return by_registers(
      [](Register part) -> Register {
#if defined(__AVX512F__)
        const __mmask16 keep = _mm512_test_epi32_mask(reinterpret_cast<__m512i>(part), _mm512_set1_epi32(0x7f800000));
        return _mm512_maskz_mov_ps(keep, part);
#else
        return (reinterpret_cast<RegisterBits>(part) & 0x7f800000U) != 0 ? part : Register{};
#endif
      },
      value);
}

// The lanes in a fixed tree, halves onto each other.
template <typename Join>
SPILLWAY_INLINE float joined(const f32x16& value, const Join& join) {
  using f32x8 = float __attribute__((vector_size(32)));
  using f32x4 = float __attribute__((vector_size(16)));
  f32x4 four[2];
  if constexpr (f32x16::parts == 4) {
    four[0] = join(value.part[0], value.part[2]);
    four[1] = join(value.part[1], value.part[3]);
  } else {
    f32x8 eight[2];
    std::memcpy(&eight, &value, sizeof value);
    eight[0] = join(eight[0], eight[1]);
    std::memcpy(&four, &eight[0], sizeof four);
  }
  const auto last = join(four[0], four[1]);
  return join(join(last[0], last[2]), join(last[1], last[3]));
}
SPILLWAY_INLINE float sum(f32x16 value) {
  return joined(value, [](auto a, auto b) { return a + b; });
}
SPILLWAY_INLINE double sum(const f64x16& value) {
  double lane[lanes];
  store_as(lane, value);
  for (int width = 8; width >= 1; width /= 2) {
    for (int k = 0; k < width; ++k) lane[k] += lane[k + width];
  }
  return lane[0];
}
SPILLWAY_INLINE float largest(f32x16 value) {
  return joined(value, [](auto a, auto b) { return a > b ? a : b; });
}

// b where a is NaN, and where b is.
SPILLWAY_INLINE f32x16 max(f32x16 a, f32x16 b) {
  return by_registers([](Register x, Register y) { return x > y ? x : y; }, a, b);
}

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

// NaN where x is. GCC 12 makes two instructions of a comparison.
SPILLWAY_INLINE Register at_most(float most, Register x) {
#if defined(__AVX512F__)
  return _mm512_maskz_min_ps(0xffff, _mm512_set1_ps(most), x);  // without a mask GCC 12 warns
#elif defined(__AVX2__)
  return _mm256_min_ps(_mm256_set1_ps(most), x);
#else
  return x > most ? Register{} + most : x;
#endif
}

// x to the nearest integer, ties to even, for |x| below 2^22; and that as the low bits.
struct Rounded {
  Register number;
  RegisterBits low_bits;
};
SPILLWAY_INLINE Rounded rounded(Register shifted, Register shifter) {
  return {shifted - shifter, reinterpret_cast<RegisterBits>(shifted)};
}

// y · 2^n where x is at least `least`, 0 where it is below; NaN where x is. y is near 1, and so is 2^n · y then.
SPILLWAY_INLINE Register scaled_from(Register x, float least, Register y, const Rounded& n) {
#if defined(__AVX512F__)
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(least), _CMP_NLT_UQ), y, n.number);
#else
  const Register zero = {};
  // n goes into the exponent of y by addition.
  const RegisterBits scaled = reinterpret_cast<RegisterBits>(y) + (n.low_bits << 23);
  const Register result = x < least ? zero : reinterpret_cast<Register>(scaled);
  // NOLINTNEXTLINE(misc-redundant-expression): where it is NaN
  return x != x ? x : result;
#endif
}

constexpr float exp_shifter = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer

// Range reduction to [-ln2/2, ln2/2] and a polynomial.
SPILLWAY_INLINE Register exp_of_part(Register x) {
  const Register zero = {};
  const Register shifter = zero + exp_shifter;
  const Rounded n = rounded(fma(x, zero + 1.44269504088896341F, shifter), shifter);
  const Register r = fma(n.number, zero + 2.12194440e-4F, fma(n.number, zero - 0.693359375F, x));
  Register p = zero + 1.9875691500e-4F;
  for (const float next : {1.3981999507e-3F, 8.3334519073e-3F, 4.1665795894e-2F, 1.6666665459e-1F, 5.0000001201e-1F}) {
    p = fma(p, r, zero + next);
  }
  return scaled_from(x, -87.33654F, fma(p, r * r, r) + 1.0F, n);
}

// e^x to about 2 ulp for x of at most about 1, as in a softmax; 0 below -87.3; NaN stays NaN.
SPILLWAY_INLINE f32x16 exp_below_one(f32x16 x) {
  return by_registers([](Register part) { return exp_of_part(part); }, x);
}

// The minimax polynomial of 2^f for |f| <= 1/2 that is 1 at 0: relative error 1e-7.
SPILLWAY_INLINE Register exp2_of_part(Register x) {
  const Register zero = {};
  const Register shifter = zero + exp_shifter;
  const Rounded n = rounded(x + shifter, shifter);
  const Register f = x - n.number;
  Register p = zero + 0x1.5bba14p-10F;
  for (const float next : {0x1.3cea88p-7F, 0x1.c6b752p-5F, 0x1.ebf9bcp-3F, 0x1.62e42ap-1F, 1.0F}) {
    p = fma(p, f, zero + next);
  }
  return scaled_from(x, -126.0F, p, n);
}

// 2^((x - offset) · factor) to about 2 ulp of the exponent as it is rounded; 2 where that is above 1, 0 below -126; NaN
// stays NaN.
SPILLWAY_INLINE f32x16 exp2_of_difference(f32x16 x, f32x16 offset, f32x16 factor) {
  return by_registers([](Register a, Register b, Register c) { return exp2_of_part(at_most(1.0F, (a - b) * c)); }, x,
                      offset, factor);
}

// 1 / (1 + e^-x), from e^-|x|.
SPILLWAY_INLINE f32x16 sigmoid(f32x16 x) {
  const f32x16 e = exp_below_one(from_bits(bits(x) | 0x80000000U));
  return choose(where_negative(x), e, splat(1.0F)) / (e + 1.0F);
}

}  // namespace spillway::SPILLWAY_TARGET
