// Sixteen elements in GCC's portable vectors: arithmetic lane by lane, loads, stores and conversions, in whatever
// registers the target has.
//
// Use only inside kernel*.cpp, within `namespace spillway::SPILLWAY_TARGET`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#endif

#ifndef SPILLWAY_TARGET
#define SPILLWAY_TARGET baseline
#endif

#define SPILLWAY_INLINE [[gnu::always_inline]] inline

namespace spillway::SPILLWAY_TARGET {

constexpr std::int64_t lanes = 16;

// What one register of the target holds.
#if defined(__AVX512F__)
constexpr std::size_t register_bytes = 64;
#elif defined(__AVX2__)
constexpr std::size_t register_bytes = 32;
#else
constexpr std::size_t register_bytes = 16;
#endif

// Does the statement for each part `i` of `parts`, without a loop: what is indexed by a variable is not kept in
// registers.
#define SPILLWAY_PART(number, statement)               \
  if constexpr ((number) < parts) {                    \
    [[maybe_unused]] constexpr std::size_t i = number; \
    statement;                                         \
  }
#define SPILLWAY_EACH_PART(statement) \
  SPILLWAY_PART(0, statement)         \
  SPILLWAY_PART(1, statement)         \
  SPILLWAY_PART(2, statement)         \
  SPILLWAY_PART(3, statement)         \
  SPILLWAY_PART(4, statement)         \
  SPILLWAY_PART(5, statement)         \
  SPILLWAY_PART(6, statement)         \
  SPILLWAY_PART(7, statement)

// Sixteen elements in as many registers as they take, or in a part of one. GCC 12 keeps a vector type that is wider
// than a register in memory from one operation to the next, which made kernels up to three times slower.
template <typename T>
struct Sixteen {
  static constexpr std::size_t part_bytes = std::min(register_bytes, lanes * sizeof(T));
  static constexpr std::size_t part_lanes = part_bytes / sizeof(T);
  static constexpr std::size_t parts = lanes / part_lanes;
  typedef T Part __attribute__((vector_size(part_bytes)));  // NOLINT(modernize-use-using): GCC 12 drops the size

  Part part[parts];

  T operator[](std::size_t i) const { return part[i / part_lanes][i % part_lanes]; }

  SPILLWAY_INLINE static Sixteen all(T value) {
    Sixteen out;
    SPILLWAY_EACH_PART(out.part[i] = value - Part{})  // also -0
    return out;
  }

  // Of each lane; an operand that is one number is that in all lanes.
#define SPILLWAY_OPERATOR(op)                                                               \
  SPILLWAY_INLINE friend Sixteen operator op(const Sixteen& a, const Sixteen& b) {          \
    Sixteen out;                                                                            \
    SPILLWAY_EACH_PART(out.part[i] = a.part[i] op b.part[i])                                \
    return out;                                                                             \
  }                                                                                         \
  SPILLWAY_INLINE friend Sixteen operator op(const Sixteen& a, T b) { return a op all(b); } \
  SPILLWAY_INLINE friend Sixteen operator op(T a, const Sixteen& b) { return all(a) op b; } \
  SPILLWAY_INLINE Sixteen& operator op##=(const Sixteen& b) { return *this = *this op b; }
  SPILLWAY_OPERATOR(+)
  SPILLWAY_OPERATOR(-)
  SPILLWAY_OPERATOR(*)
  SPILLWAY_OPERATOR(/)
  SPILLWAY_OPERATOR(&)
  SPILLWAY_OPERATOR(|)
  SPILLWAY_OPERATOR(^)
#undef SPILLWAY_OPERATOR
  SPILLWAY_INLINE friend Sixteen operator<<(const Sixteen& a, int by) {
    Sixteen out;
    SPILLWAY_EACH_PART(out.part[i] = a.part[i] << by)
    return out;
  }
  SPILLWAY_INLINE friend Sixteen operator>>(const Sixteen& a, int by) {
    Sixteen out;
    SPILLWAY_EACH_PART(out.part[i] = a.part[i] >> by)
    return out;
  }
  SPILLWAY_INLINE friend Sixteen operator~(const Sixteen& a) {
    Sixteen out;
    SPILLWAY_EACH_PART(out.part[i] = ~a.part[i])
    return out;
  }
  SPILLWAY_INLINE friend Sixteen operator-(const Sixteen& a) {
    Sixteen out;
    SPILLWAY_EACH_PART(out.part[i] = -a.part[i])
    return out;
  }
};

using f32x16 = Sixteen<float>;
using f64x16 = Sixteen<double>;
using i32x16 = Sixteen<std::int32_t>;
using u32x16 = Sixteen<std::uint32_t>;
using u16x16 = Sixteen<std::uint16_t>;
using u8x16 = Sixteen<std::uint8_t>;
using Register = f32x16::Part;
using RegisterBits = u32x16::Part;

// Calls `part` for each register of the vectors, all of elements of 4 bytes; returns what it returns of them.
template <typename Call, typename... Vectors>
SPILLWAY_INLINE auto by_registers(const Call& part, const Vectors&... vectors) {
  using Result = decltype(part(vectors.part[0]...));
  constexpr std::size_t parts = f32x16::parts;
  Sixteen<std::remove_cvref_t<decltype(Result{}[0])>> out;
  SPILLWAY_EACH_PART(out.part[i] = part(vectors.part[i]...))
  return out;
}

SPILLWAY_INLINE u32x16 bits(const f32x16& value) {
  return by_registers([](Register part) { return reinterpret_cast<RegisterBits>(part); }, value);
}
SPILLWAY_INLINE f32x16 from_bits(const u32x16& value) {
  return by_registers([](RegisterBits part) { return reinterpret_cast<Register>(part); }, value);
}
SPILLWAY_INLINE f32x16 splat(float value) { return f32x16::all(value); }

// Sixteen as they lie in memory.
template <typename T>
SPILLWAY_INLINE Sixteen<T> load_as(const T* from) {
  constexpr std::size_t parts = Sixteen<T>::parts;
  Sixteen<T> out;
  SPILLWAY_EACH_PART(std::memcpy(&out.part[i], from + i * out.part_lanes, out.part_bytes))
  return out;
}
template <typename T>
SPILLWAY_INLINE void store_as(T* to, const Sixteen<T>& value) {
  constexpr std::size_t parts = Sixteen<T>::parts;
  SPILLWAY_EACH_PART(std::memcpy(to + i * value.part_lanes, &value.part[i], value.part_bytes))
}

// --- Conversions, a part of the wider type at a time ---
//
// GCC 12 takes up to five instructions where one is named here, and warns of intrinsics without a mask.

template <typename To, typename From>
SPILLWAY_INLINE Sixteen<To> converted(const Sixteen<From>& value) {
  constexpr std::size_t parts = std::max(Sixteen<To>::parts, Sixteen<From>::parts);
  constexpr std::size_t part_lanes = lanes / parts;
  typedef To NarrowTo __attribute__((vector_size(part_lanes * sizeof(To))));        // NOLINT(modernize-use-using)
  typedef From NarrowFrom __attribute__((vector_size(part_lanes * sizeof(From))));  // NOLINT(modernize-use-using)
  From from[lanes];
  To to[lanes];
  store_as(from, value);
  SPILLWAY_EACH_PART({
    NarrowFrom narrow;
    std::memcpy(&narrow, from + i * part_lanes, sizeof narrow);
    const auto other = __builtin_convertvector(narrow, NarrowTo);
    std::memcpy(to + i * part_lanes, &other, sizeof other);
  })
  return load_as(to);
}

// Each element as an unsigned number of 32 bits.
SPILLWAY_INLINE u32x16 extended(const u16x16& value) {
#if defined(__AVX512F__)
  return {
      {reinterpret_cast<RegisterBits>(_mm512_maskz_cvtepu16_epi32(0xffff, reinterpret_cast<__m256i>(value.part[0])))}};
#elif defined(__AVX2__)
  const auto all = reinterpret_cast<__m256i>(value.part[0]);
  return {{reinterpret_cast<RegisterBits>(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(all))),
           reinterpret_cast<RegisterBits>(_mm256_cvtepu16_epi32(_mm256_extracti128_si256(all, 1)))}};
#else
  return converted<std::uint32_t>(value);
#endif
}
// As a signed one.
SPILLWAY_INLINE u32x16 sign_extended(const u16x16& value) {
#if defined(__AVX512F__)
  return {
      {reinterpret_cast<RegisterBits>(_mm512_maskz_cvtepi16_epi32(0xffff, reinterpret_cast<__m256i>(value.part[0])))}};
#elif defined(__AVX2__)
  const auto all = reinterpret_cast<__m256i>(value.part[0]);
  return {{reinterpret_cast<RegisterBits>(_mm256_cvtepi16_epi32(_mm256_castsi256_si128(all))),
           reinterpret_cast<RegisterBits>(_mm256_cvtepi16_epi32(_mm256_extracti128_si256(all, 1)))}};
#else
  return (extended(value) ^ 0x8000U) - 0x8000U;
#endif
}

SPILLWAY_INLINE u16x16 lower_halves(const u32x16& value) {
#if defined(__AVX512F__)
  return {
      {reinterpret_cast<u16x16::Part>(_mm512_maskz_cvtepi32_epi16(0xffff, reinterpret_cast<__m512i>(value.part[0])))}};
#elif defined(__AVX2__)
  const u32x16 low = value & 0xffffU;
  const __m256i crossed =
      _mm256_packus_epi32(reinterpret_cast<__m256i>(low.part[0]), reinterpret_cast<__m256i>(low.part[1]));
  return {{reinterpret_cast<u16x16::Part>(_mm256_permute4x64_epi64(crossed, 0xd8))}};
#else
  return converted<std::uint16_t>(value);
#endif
}

SPILLWAY_INLINE f64x16 extended(const f32x16& value) {
#if defined(__AVX512F__)
  const Register all = value.part[0];
  return {{_mm512_maskz_cvtps_pd(0xff, __builtin_shufflevector(all, all, 0, 1, 2, 3, 4, 5, 6, 7)),
           _mm512_maskz_cvtps_pd(0xff, __builtin_shufflevector(all, all, 8, 9, 10, 11, 12, 13, 14, 15))}};
#elif defined(__AVX2__)
  const auto low = [](__m256 all) { return _mm256_cvtps_pd(_mm256_castps256_ps128(all)); };
  const auto high = [](__m256 all) { return _mm256_cvtps_pd(_mm256_extractf128_ps(all, 1)); };
  return {{low(value.part[0]), high(value.part[0]), low(value.part[1]), high(value.part[1])}};
#else
  return converted<double>(value);
#endif
}

}  // namespace spillway::SPILLWAY_TARGET
