// Which state is worth keeping in memory, as a simulated step has it. Evicting what is needed farthest in the future
// moves the fewest bytes, but bytes that are waited for cost more than those that come by in time: where a step needs
// much state at once, as in the update of a large embedding, it pays to keep that and to move more of what is needed
// evenly.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"
#include "sim/simulate.h"

namespace spillway {

// By bundle: the state whose reads computing waited for longest a page in this timeline of the plan, as much as fits in
// so many pages. For PlanRequest::pinned.
std::vector<bool> most_awaited(const Plan& plan, const Layout& layout, const Timeline& timeline, std::int64_t pages);

}  // namespace spillway
