#include "sim/awaited.h"

#include <algorithm>
#include <utility>

namespace spillway {

std::vector<bool> most_awaited(const Plan& plan, const Layout& layout, const Timeline& timeline, std::int64_t pages) {
  std::vector<double> waited(layout.bundles.size(), 0);
  double free_at = 0;
  for (const InstrId id : plan.lanes[static_cast<std::size_t>(LaneId::compute)]) {
    const double start = timeline.starts[index_of(id)];
    for (const InstrId after : plan.instrs[index_of(id)].after) {
      const Instr& move = plan.instrs[index_of(after)];
      const bool comes_in = move.kind == Instr::Kind::read || move.kind == Instr::Kind::up;
      if (!comes_in || timeline.ends[index_of(after)] <= free_at) continue;
      waited[index_of(plan.stays[index_of(move.stays.front())].bundle)] += start - free_at;
    }
    free_at = timeline.ends[index_of(id)];
  }
  std::vector<std::pair<double, std::size_t>> order;  // seconds a page
  for (std::size_t b = 0; b < static_cast<std::size_t>(layout.state_bundles); ++b) {
    if (waited[b] == 0) continue;
    order.emplace_back(waited[b] / static_cast<double>(layout.pages_of(static_cast<BundleId>(b))), b);
  }
  std::sort(order.rbegin(), order.rend());
  std::vector<bool> chosen(layout.bundles.size(), false);
  for (const auto& [seconds, b] : order) {
    const std::int64_t of_bundle = layout.pages_of(static_cast<BundleId>(b));
    if (of_bundle > pages) continue;
    pages -= of_bundle;
    chosen[b] = true;
  }
  return chosen;
}

}  // namespace spillway
