// Each element stands alone, so the lanes of a vector do not show in the bits: plain loops, made vectors of any width
// by the compiler, with one rounding an operation on all targets.
#include "ops/adamw/kernel.h"

#include <cstring>

#include "ops/simd.h"

namespace spillway::SPILLWAY_TARGET {
namespace {

SPILLWAY_INLINE float flush(float value) { return __builtin_fabsf(value) < 0x1p-126F ? 0.0F : value; }

SPILLWAY_INLINE float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
SPILLWAY_INLINE std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

SPILLWAY_INLINE float update(float p, float& m, float& v, float grad, const AdamwScalars& by, float clip) {
  const float g = grad * clip;
  m = flush(by.b1 * m + by.c1 * g);
  v = flush(by.b2 * v + by.c2 * (g * g));
  return p * by.keep - by.step * (m / (__builtin_sqrtf(v) * by.r + by.eps));
}

SPILLWAY_INLINE void update_range(const AdamwStreams<float>& streams, std::int64_t begin, std::int64_t count,
                                  const AdamwScalars& by, float clip) {
  float* __restrict weight = streams.weight + begin;
  float* __restrict exp_avg = streams.exp_avg + begin;
  float* __restrict exp_avg_sq = streams.exp_avg_sq + begin;
  const float* __restrict grad = streams.grad + begin;
  for (std::int64_t i = 0; i < count; ++i) {
    weight[i] = update(weight[i], exp_avg[i], exp_avg_sq[i], grad[i], by, clip);
  }
}

// The split master of base/dtype.h, in integers only.
SPILLWAY_INLINE void update_range(const AdamwStreams<bf16_t>& streams, std::int64_t begin, std::int64_t count,
                                  const AdamwScalars& by, float clip) {
  bf16_t* __restrict weight = streams.weight + begin;
  float* __restrict exp_avg = streams.exp_avg + begin;
  float* __restrict exp_avg_sq = streams.exp_avg_sq + begin;
  std::uint16_t* __restrict low = streams.low + begin;
  const bf16_t* __restrict grad = streams.grad + begin;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t lo = low[i];
    // int16(lo), widened: bit 15 stands for -2^15.
    const float master = float_of((std::uint32_t{weight[i]} << 16) + ((lo ^ 0x8000U) - 0x8000U));
    const float next = update(master, exp_avg[i], exp_avg_sq[i], float_of(std::uint32_t{grad[i]} << 16), by, clip);
    const std::uint32_t u = bits_of(next);
    weight[i] = static_cast<bf16_t>((u + 0x8000U) >> 16);
    low[i] = static_cast<std::uint16_t>(u & 0xffffU);
  }
}

// Whole lines of every stream.
constexpr std::int64_t block = 64;

template <typename T>
SPILLWAY_INLINE void prefetch_block(const T* from) {
  constexpr std::int64_t of_a_line = 64 / sizeof(T);
  for (std::int64_t i = 0; i < block; i += of_a_line) __builtin_prefetch(from + i);
}

}  // namespace

template <typename T>
void adamw_chunk(const AdamwStreams<T>& given, const AdamwScalars& scalars, float clip) {
  const AdamwStreams<T> streams = given;
  const AdamwScalars by = scalars;
  std::int64_t begin = 0;
  for (; streams.ahead > 0 && begin + streams.ahead + block <= streams.count; begin += block) {
    const std::int64_t later = begin + streams.ahead;
    prefetch_block(streams.weight + later);
    prefetch_block(streams.exp_avg + later);
    prefetch_block(streams.exp_avg_sq + later);
    if constexpr (sizeof(T) == sizeof(bf16_t)) prefetch_block(streams.low + later);
    prefetch_block(streams.grad + later);
    update_range(streams, begin, block, by, clip);
  }
  update_range(streams, begin, streams.count - begin, by, clip);
}

template void adamw_chunk(const AdamwStreams<float>&, const AdamwScalars&, float);
template void adamw_chunk(const AdamwStreams<bf16_t>&, const AdamwScalars&, float);

}  // namespace spillway::SPILLWAY_TARGET
