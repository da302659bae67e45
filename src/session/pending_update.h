// The update that a deferred step leaves to the next one. Weights are then those before the step, and its gradients are
// state: whoever reads the weights from outside, or saves them, completes it first or keeps it beside them.
#pragma once

#include <cstdint>

#include "ops/adamw/adamw.h"

namespace spillway {

struct PendingUpdate {
  std::int64_t step = 0;  // the step whose gradients wait, from 1
  double learning_rate = 0;
  AdamwScalars scalars = {};
  float factor = 1;  // what clips its gradients
};

}  // namespace spillway
