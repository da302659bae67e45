// Which way a step of a run that clips updates: speculatively while clips are rare, where that is faster at all, and
// deferred while they are not. A function of costs and the norms so far; all ways give the same bits, so it decides of
// time only.
#pragma once

#include <cstdint>

#include "model/update.h"

namespace spillway {

// Seconds that clipping takes each way.
struct ClipCosts {
  double speculative = 0;  // of a step that does not clip
  double redo = 0;         // added to it when the step clips
  double deferred = 0;     // of a step, whether it clips or not
};

// The share of clipped steps from which on deferring costs less: a speculative step costs
// speculative + share * redo. 0 where deferring costs no more even without clips; otherwise within [1/64, 1/2], so that
// a guess of what a redo costs forbids neither way.
double break_even_share(const ClipCosts& costs);

class ClipPolicy {
 public:
  // Always the same way.
  explicit ClipPolicy(UpdateWay way) : way_(way), adapts_(false) {}
  // Begins with what costs less without clips; always defers where the break-even share is 0.
  explicit ClipPolicy(const ClipCosts& costs)
      : way_(break_even_share(costs) > 0 ? UpdateWay::speculative : UpdateWay::deferred),
        adapts_(true),
        break_even_(break_even_share(costs)) {}

  UpdateWay way() const { return way_; }  // of the next step
  // After each step. The share of clipped steps is an exponential mean over about memory_steps, of the steps there
  // were: where the first step clips, the second defers. The way changes to deferred above the break-even share, and
  // back only below half of it.
  void note(bool clipped);
  double clipped_share() const { return seen_ > 0 ? clipped_ / seen_ : 0; }

  static constexpr double memory_steps = 16;

 private:
  UpdateWay way_;
  bool adapts_;
  double break_even_ = 0;
  double clipped_ = 0;  // weights of the steps that clipped…
  double seen_ = 0;     // …and of all; 1 for endlessly many
};

}  // namespace spillway
