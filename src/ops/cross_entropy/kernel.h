// Inner loops of cross-entropy: one row of one tile of logits. T is float or bf16_t.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/dispatch.h"

namespace spillway {

// What a row of logits turns into its gradient with.
struct SoftmaxRow {
  float largest = 0;        // of all the row's logits
  float inverse_sum = 0;    // 1 / sum(exp(logit - largest))
  float scale = 0;          // 1 / targets of the step
  std::int64_t target = 0;  // within the tile; outside [0, count) when it lies in another
};

}  // namespace spillway

SPILLWAY_DECLARE_TARGETS(float largest_logit(const float* logits, std::int64_t count))
// The sum of exp(logit - largest) in 16 double lanes.
SPILLWAY_DECLARE_TARGETS(double sum_of_exp(const float* logits, std::int64_t count, float largest))
// dlogits = (softmax - onehot) * scale; may lie in place of logits when T is float.
SPILLWAY_DECLARE_TARGETS(template <typename T> void logits_gradient(T* dlogits, const float* logits, std::int64_t count,
                                                                    const SoftmaxRow& row))
