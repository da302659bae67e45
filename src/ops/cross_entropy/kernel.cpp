#include "ops/cross_entropy/kernel.h"

#include "ops/simd.h"

namespace spillway::SPILLWAY_TARGET {
namespace {

// As load_first, with lanes that add nothing to a softmax.
SPILLWAY_INLINE f32x16 load_logits(const float* from, std::int64_t count) {
  float padded[lanes];
  store(padded, splat(-__builtin_inff()));
  std::memcpy(padded, from, static_cast<std::size_t>(count) * sizeof(float));
  return load(padded);
}

}  // namespace

float largest_logit(const float* logits, std::int64_t count) {
  f32x16 most = splat(-__builtin_inff());
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) most = max(most, load(logits + i));
  if (i < count) most = max(most, load_logits(logits + i, count - i));
  return largest(most);
}

double sum_of_exp(const float* logits, std::int64_t count, float largest) {
  f64x16 total = {};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) total += extended(exp_below_one(load(logits + i) - largest));
  if (i < count) total += extended(exp_below_one(load_logits(logits + i, count - i) - largest));
  return sum(total);
}

template <typename T>
void logits_gradient(T* dlogits, const float* logits, std::int64_t count, const SoftmaxRow& row) {
  const bool holds_target = row.target >= 0 && row.target < count;
  const float target_logit = holds_target ? logits[row.target] : 0.0F;  // before it is overwritten
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    store(dlogits + i, exp_below_one(load(logits + i) - row.largest) * row.inverse_sum * row.scale);
  }
  if (i < count) {
    const f32x16 rest = load_logits(logits + i, count - i);
    store_first(dlogits + i, exp_below_one(rest - row.largest) * row.inverse_sum * row.scale, count - i);
  }
  if (holds_target) {
    const f32x16 at_target = exp_below_one(splat(target_logit) - row.largest) * row.inverse_sum;
    store_first(dlogits + row.target, (at_target - 1.0F) * row.scale, 1);
  }
}

template void logits_gradient(float*, const float*, std::int64_t, const SoftmaxRow&);
template void logits_gradient(bf16_t*, const float*, std::int64_t, const SoftmaxRow&);

}  // namespace spillway::SPILLWAY_TARGET
