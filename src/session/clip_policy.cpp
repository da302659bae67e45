#include "session/clip_policy.h"

#include <algorithm>

namespace spillway {

double break_even_share(const ClipCosts& costs) {
  constexpr double least = 1.0 / 64;
  constexpr double most = 0.5;
  if (costs.deferred <= costs.speculative) return 0;
  if (costs.redo <= 0) return most;
  return std::clamp((costs.deferred - costs.speculative) / costs.redo, least, most);
}

void ClipPolicy::note(bool clipped) {
  clipped_ += ((clipped ? 1.0 : 0.0) - clipped_) / memory_steps;
  seen_ += (1.0 - seen_) / memory_steps;
  if (!adapts_) return;
  if (clipped_share() > break_even_) way_ = UpdateWay::deferred;
  if (clipped_share() < break_even_ / 2) way_ = UpdateWay::speculative;
}

}  // namespace spillway
