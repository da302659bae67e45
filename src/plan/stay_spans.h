// When the stays of a finished plan begin and end, in the order of its instructions: what those need who choose the
// pages that they lie on.
#pragma once

#include <limits>
#include <vector>

#include "plan/plan.h"

namespace spillway {

struct StaySpan {
  static constexpr std::int32_t never = std::numeric_limits<std::int32_t>::max();

  std::int32_t first = -1;    // the instruction that begins it; -1: it is there when the plan begins
  std::int32_t last = -1;     // the last that names it, -1 where none does; never: it is there when the plan ends
  std::int32_t next = never;  // the beginning of the bundle's next stay
  Accesses accesses = no_accesses;
};

// By stay.
std::vector<StaySpan> spans_of(const Plan& plan, std::size_t bundles);

// Makes what begins a stay wait for the last accesses to its pages.
void wait_for_pages(Plan& plan, const std::vector<StaySpan>& spans);

// Of a plan that was made `unplaced` (PlanRequest): its stays lie where the planner had pages free for them, those that
// came free first.
void keep_pages(Plan& plan, const Layout& layout);

}  // namespace spillway
