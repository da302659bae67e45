#include "ops/grad_norm/kernel.h"

#include "ops/simd.h"

namespace spillway::SPILLWAY_TARGET {
namespace {

// The 16 lanes in vectors that fit a register: wider ones would be kept in memory from one addition to the next.
constexpr std::size_t part_lanes = register_bytes / sizeof(double);
constexpr std::size_t parts = lanes / part_lanes;
using Part = double __attribute__((vector_size(register_bytes)));
using PartOfF32 = float __attribute__((vector_size(register_bytes / 2)));
using PartOfBits = std::uint32_t __attribute__((vector_size(register_bytes / 2)));
using PartOfBf16 = std::uint16_t __attribute__((vector_size(register_bytes / 4)));

// What GCC 12 makes of conversions to registers of 512 bits is three times as long as these instructions.
SPILLWAY_INLINE Part extended(PartOfF32 value) {
#ifdef __AVX512F__
  return _mm512_maskz_cvtps_pd(0xff, value);
#else
  return __builtin_convertvector(value, Part);
#endif
}
SPILLWAY_INLINE PartOfBits extended(PartOfBf16 value) {
#ifdef __AVX512F__
  return reinterpret_cast<PartOfBits>(_mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(value)));
#else
  return __builtin_convertvector(value, PartOfBits);
#endif
}

SPILLWAY_INLINE Part widen_part(const float* from) {
  PartOfF32 narrow;
  std::memcpy(&narrow, from, sizeof narrow);
  return extended(narrow);
}
SPILLWAY_INLINE Part widen_part(const bf16_t* from) {
  PartOfBf16 half;
  std::memcpy(&half, from, sizeof half);
  return extended(reinterpret_cast<PartOfF32>(extended(half) << 16));
}

template <typename T>
SPILLWAY_INLINE void add_squares(Part (&total)[parts], const T* from) {
  for (std::size_t k = 0; k < parts; ++k) {
    const Part wide = widen_part(from + k * part_lanes);
    total[k] += wide * wide;
  }
}

}  // namespace

template <typename T>
double block_sum_squares(const T* grad, std::int64_t count, std::int64_t ahead) {
  Part total[parts] = {};
  std::int64_t i = 0;
  for (; ahead > 0 && i + ahead + lanes <= count; i += lanes) {
    __builtin_prefetch(grad + i + ahead);
    add_squares(total, grad + i);
  }
  for (; i + lanes <= count; i += lanes) add_squares(total, grad + i);
  if (i < count) {
    T padded[lanes] = {};
    std::memcpy(padded, grad + i, static_cast<std::size_t>(count - i) * sizeof(T));
    add_squares(total, padded);
  }
  double lane[lanes];
  std::memcpy(lane, total, sizeof lane);
  for (int width = 8; width >= 1; width /= 2) {
    for (int k = 0; k < width; ++k) lane[k] += lane[k + width];
  }
  return lane[0];
}

template double block_sum_squares(const float*, std::int64_t, std::int64_t);
template double block_sum_squares(const bf16_t*, std::int64_t, std::int64_t);

}  // namespace spillway::SPILLWAY_TARGET
