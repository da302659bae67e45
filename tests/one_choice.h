// Choosing plans a step a hundred times over by the same code, under a sanitizer for seconds. Runs there that are of
// something else are left one way to go; in release they choose.
#pragma once

#include "session/options.h"
#include "under_sanitizer.h"

namespace spillway {

// The way that steps clip is left to be chosen.
inline void leave_one_way_to_work(TrainOptions& options) {
  options.order = "layer";
  options.recompute = "none";
  options.policy = "farthest";
}

inline void leave_one_choice_under_sanitizer(TrainOptions& options) {
  if (!under_sanitizer) return;
  leave_one_way_to_work(options);
  options.clip_mode = "after";
}

}  // namespace spillway
