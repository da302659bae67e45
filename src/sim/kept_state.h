// Which state is worth keeping in memory, as a simulated step has it. Evicting what is needed farthest in the future
// moves the fewest bytes, but bytes that are waited for cost more than those that come by in time: where a step needs
// much state at once, as in the update of a large embedding, it pays to keep that and to move more of what is needed
// evenly. Where all of a step waits for the disk, it pays to keep what has its first use and its last far apart, as the
// weights of first layers have: in between it lies in memory, where its pages help nothing else, or is read twice.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/plan.h"
#include "sim/simulate.h"

namespace spillway {

enum class Keep : std::uint8_t {
  // Whose reads computing waited for longest, a page; what it never waited for is left out.
  awaited,
  // First what has half of the step or more between its first use and its last, then by the same, then by how much.
  // Left out is what the compute lane never uses, and what no commit holds, which lives between steps and not in them.
  held,
};
inline constexpr std::array all_keeps = {Keep::awaited, Keep::held};
constexpr std::size_t index_of(Keep keep) { return static_cast<std::size_t>(keep); }

// Bundles of state, those that are worth most first, in this timeline of the plan.
std::vector<BundleId> worth_keeping(Keep keep, const Plan& plan, const Layout& layout, const Timeline& timeline);

// State as a plan that keeps none has it: weighed once for all shares of the pages that are tried in turn.
class WeighedState {
 public:
  WeighedState(const Plan& plan, const Layout& layout, const Timeline& timeline);
  // As much as fits in this share of the pages beyond the smallest budget, whole bundles, what is worth most first.
  std::vector<PieceId> pieces_to_keep(Keep keep, double share) const;

 private:
  struct Together {  // pieces of one bundle
    std::int64_t pages = 0;
    std::vector<PieceId> pieces;
  };
  std::int64_t spare_pages_ = 0;
  std::array<std::vector<Together>, all_keeps.size()> by_worth_;
};

}  // namespace spillway
