#include "sim/kept_state.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace spillway {
namespace {

// By bundle, how long computing waited for its reads.
std::vector<double> awaited_seconds(const Plan& plan, const Layout& layout, const Timeline& timeline) {
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
  return waited;
}

// By bundle, from its first use by the compute lane to the end of its last; 0 where it has none.
std::vector<double> held_seconds(const Plan& plan, const Layout& layout, const Timeline& timeline) {
  std::vector<double> first(layout.bundles.size(), std::numeric_limits<double>::infinity());
  std::vector<double> last(layout.bundles.size(), 0);
  for (const InstrId id : plan.lanes[static_cast<std::size_t>(LaneId::compute)]) {
    for (const StayId stay : plan.instrs[index_of(id)].stays) {
      const std::size_t b = index_of(plan.stays[index_of(stay)].bundle);
      first[b] = std::min(first[b], timeline.starts[index_of(id)]);
      last[b] = std::max(last[b], timeline.ends[index_of(id)]);
    }
  }
  for (std::size_t b = 0; b < last.size(); ++b) last[b] = std::max(0.0, last[b] - first[b]);
  return last;
}

}  // namespace

std::vector<BundleId> worth_keeping(Keep keep, const Plan& plan, const Layout& layout, const Timeline& timeline) {
  const std::vector<double> waited = awaited_seconds(plan, layout, timeline);
  const std::vector<double> held = held_seconds(plan, layout, timeline);
  struct Worth {
    bool long_held = false;
    double awaited = 0;  // seconds a page
    double held = 0;     // seconds
    BundleId bundle = BundleId::none;
    auto operator<=>(const Worth&) const = default;
  };
  std::vector<Worth> order;
  for (std::size_t b = 0; b < static_cast<std::size_t>(layout.state_bundles); ++b) {
    const auto bundle = static_cast<BundleId>(b);
    const double awaited = waited[b] / static_cast<double>(layout.pages_of(bundle));
    if (keep == Keep::awaited && awaited > 0) order.push_back({false, awaited, 0, bundle});
    if (keep == Keep::held && held[b] > 0 && layout.bundles[b].committed) {
      order.push_back({held[b] >= timeline.seconds / 2, awaited, held[b], bundle});
    }
  }
  std::sort(order.rbegin(), order.rend());
  std::vector<BundleId> bundles;
  for (const Worth& worth : order) bundles.push_back(worth.bundle);
  return bundles;
}

WeighedState::WeighedState(const Plan& plan, const Layout& layout, const Timeline& timeline)
    : spare_pages_(plan.compute_pages() - smallest_pages(layout)) {
  std::vector<std::vector<PieceId>> pieces(layout.bundles.size());
  for (std::size_t p = 0; p < layout.piece_places.size(); ++p) {
    pieces[index_of(layout.piece_places[p].bundle)].push_back(static_cast<PieceId>(p));
  }
  for (const Keep keep : all_keeps) {
    for (const BundleId bundle : worth_keeping(keep, plan, layout, timeline)) {
      by_worth_[index_of(keep)].push_back({layout.pages_of(bundle), pieces[index_of(bundle)]});
    }
  }
}

std::vector<PieceId> WeighedState::pieces_to_keep(Keep keep, double share) const {
  auto pages = static_cast<std::int64_t>(share * static_cast<double>(spare_pages_));
  std::vector<PieceId> kept;
  for (const Together& bundle : by_worth_[index_of(keep)]) {
    if (bundle.pages > pages) continue;
    pages -= bundle.pages;
    kept.insert(kept.end(), bundle.pieces.begin(), bundle.pieces.end());
  }
  return kept;
}

}  // namespace spillway
