#include "ops/grad_norm/kernel.h"

#include "ops/simd.h"

namespace spillway::SPILLWAY_TARGET {
namespace {

#if defined(__AVX512F__)
constexpr int register_bytes = 64;
#elif defined(__AVX2__)
constexpr int register_bytes = 32;
#else
constexpr int register_bytes = 16;
#endif

// The 16 lanes in vectors that fit a register: wider ones would be kept in memory from one addition to the next.
constexpr std::size_t part_lanes = register_bytes / sizeof(double);
constexpr std::size_t parts = lanes / part_lanes;
using Part = double __attribute__((vector_size(register_bytes)));
using PartOfF32 = float __attribute__((vector_size(register_bytes / 2)));

SPILLWAY_INLINE Part widen_part(const float* from) {
  PartOfF32 narrow;
  std::memcpy(&narrow, from, sizeof narrow);
  return __builtin_convertvector(narrow, Part);
}
SPILLWAY_INLINE Part widen_part(const bf16_t* from) {
  std::uint32_t bits[part_lanes];
  for (std::size_t i = 0; i < part_lanes; ++i) bits[i] = std::uint32_t{from[i]} << 16;
  PartOfF32 narrow;
  std::memcpy(&narrow, bits, sizeof narrow);
  return __builtin_convertvector(narrow, Part);
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
double block_sum_squares(const T* grad, std::int64_t count) {
  Part total[parts] = {};
  std::int64_t i = 0;
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

template double block_sum_squares(const float*, std::int64_t);
template double block_sum_squares(const bf16_t*, std::int64_t);

}  // namespace spillway::SPILLWAY_TARGET
