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

}  // namespace

template <>
void adamw_chunk(const AdamwStreams<float>& streams, const AdamwScalars& scalars, float clip) {
  float* __restrict weight = streams.weight;
  float* __restrict exp_avg = streams.exp_avg;
  float* __restrict exp_avg_sq = streams.exp_avg_sq;
  const float* __restrict grad = streams.grad;
  const std::int64_t count = streams.count;
  const AdamwScalars by = scalars;
  for (std::int64_t i = 0; i < count; ++i) {
    weight[i] = update(weight[i], exp_avg[i], exp_avg_sq[i], grad[i], by, clip);
  }
}

// The split master of base/dtype.h, in integers only.
template <>
void adamw_chunk(const AdamwStreams<bf16_t>& streams, const AdamwScalars& scalars, float clip) {
  bf16_t* __restrict weight = streams.weight;
  float* __restrict exp_avg = streams.exp_avg;
  float* __restrict exp_avg_sq = streams.exp_avg_sq;
  std::uint16_t* __restrict low = streams.low;
  const bf16_t* __restrict grad = streams.grad;
  const std::int64_t count = streams.count;
  const AdamwScalars by = scalars;
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

}  // namespace spillway::SPILLWAY_TARGET
