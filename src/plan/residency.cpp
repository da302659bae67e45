#include "plan/residency.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "base/error.h"

namespace spillway {

void PagesByNextUse::add(std::int32_t next_use, std::int64_t pages) {
  const std::size_t last = sums_.size() - 1;
  std::size_t at = next_use == never_used ? last : static_cast<std::size_t>(next_use) + 1;
  for (; at <= last; at += at & (~at + 1)) sums_[at] += pages;
}

std::int64_t PagesByNextUse::up_to(std::int32_t segment) const {
  std::int64_t pages = 0;
  for (auto at = static_cast<std::size_t>(segment) + 1; at > 0; at -= at & (~at + 1)) pages += sums_[at];
  return pages;
}

Residency::Residency(const Layout& layout, const Uses& uses, const VictimPolicy& policy, const PlanRequest& request,
                     const Schedule& schedule, Plan& plan)
    : layout_(layout),
      uses_(uses),
      policy_(policy),
      pinned_(request.pinned),
      schedule_(schedule),
      plan_(plan),
      holdings_(layout.bundles.size()),
      ranks_(layout.bundles.size()),
      pages_by_next_use_(uses.segments()),
      pinned_pages_(uses.segments()) {
  for (std::int64_t p = 0; p < plan.pages; ++p) free_.push_back(static_cast<PageId>(p));
}

std::vector<BundleId> Residency::bundles() const {
  std::vector<BundleId> all;
  for (const auto& [turn, rank, bundle] : order_) all.push_back(bundle);
  std::sort(all.begin(), all.end());
  return all;
}

void Residency::take(BundleId bundle, std::int32_t now) {
  SPILLWAY_CHECK(free_pages() >= layout_.pages_of(bundle), "bundle {} does not fit in {} pages", index_of(bundle),
                 plan_.pages);
  SPILLWAY_CHECK(!has(bundle), "bundle {} is in memory", index_of(bundle));
  Stay stay{bundle, {}};
  for (std::int64_t i = layout_.pages_of(bundle); i > 0; --i) {
    stay.pages.push_back(free_.front());
    free_.pop_front();
  }
  plan_.peak_pages = std::max(plan_.peak_pages, plan_.pages - free_pages());
  plan_.stays.push_back(std::move(stay));
  holding(bundle).stay = static_cast<StayId>(plan_.stays.size() - 1);
  rank(bundle, now - 1);
}

void Residency::release(BundleId bundle) {
  Holding& held = holding(bundle);
  for (const PageId page : plan_.stays[index_of(held.stay)].pages) free_.push_back(page);
  held.stay = StayId::none;
  unrank(bundle);
  settle(bundle);
}

void Residency::touched(BundleId bundle, std::int32_t s, bool changed) {
  Holding& held = holding(bundle);
  held.last_touch = s;
  unrank(bundle);
  if (changed && policy_.settling_share() > 0 && !pinned(bundle)) {
    settle(bundle);
    held.changed = ++changes_;
    settling_.emplace(held.changed, bundle);
    settling_pages_ += layout_.pages_of(bundle);
  }
  rank(bundle, s);
  const double most = policy_.settling_share() * static_cast<double>(giving_pages());
  while (static_cast<double>(settling_pages_) > most) {
    const BundleId first = settling_.begin()->second;
    order_.erase(place(first));
    settle(first);
    ranks_[index_of(first)].turn = Turn::settled;
    order_.insert(place(first));
  }
}

void Residency::settle(BundleId bundle) {
  Holding& held = holding(bundle);
  if (held.changed == 0) return;
  settling_.erase(held.changed);
  settling_pages_ -= layout_.pages_of(bundle);
  held.changed = 0;
}

void Residency::begin_use(const Use& use, Instr& first) {
  Holding& held = holding(use.bundle);
  const auto lane = static_cast<std::size_t>(first.lane);
  const auto wait_for = [&](InstrId id) {
    if (id != InstrId::none) first.after.push_back(id);
  };
  const auto wait_for_other_lanes = [&] {
    for (std::size_t other = 0; other < lane_count; ++other) {
      if (other != lane) wait_for(held.runs[other]);
    }
  };
  if (use.creates) {
    first.begins.push_back(held.stay);
    wait_for(held.last_read);  // of an earlier stay at its address, as the next ones
    wait_for(held.last_write);
    wait_for_other_lanes();
    held.runs = no_accesses;
    return;
  }
  const bool fresh = held.runs == no_accesses && held.last_read != InstrId::none;
  if (held.runs[lane] == InstrId::none) wait_for(held.last_read);
  if (use.writes) {
    if (!fresh) wait_for(held.last_write);  // the copy on its way out must not change under it
    wait_for_other_lanes();
  } else if (held.last_change != InstrId::none && schedule_.lane_of(held.last_change) != first.lane) {
    wait_for(held.last_change);
  }
}

Candidate Residency::candidate(BundleId bundle) const {
  return {bundle, holdings_[index_of(bundle)].last_touch, ranks_[index_of(bundle)].next_use, layout_.pages_of(bundle)};
}

BundleId Residency::victim(std::int32_t until) const {
  auto end = order_.end();
  while (end != order_.begin()) {
    const auto& [turn, rank, bundle] = *std::prev(end);
    if (ranks_[index_of(bundle)].next_use > until) return bundle;
    end = policy_.ranks_by_next_use() ? order_.lower_bound({turn, std::numeric_limits<std::int64_t>::min(), {}})
                                      : std::prev(end);
  }
  return BundleId::none;
}

void Residency::rank(BundleId bundle, std::int32_t after) {
  Rank& rank = ranks_[index_of(bundle)];
  rank.next_use = uses_.next(bundle, after);
  rank.rank = policy_.rank(candidate(bundle));
  SPILLWAY_CHECK(!policy_.ranks_by_next_use() || rank.rank == rank.next_use, "the policy ranks otherwise");
  const bool settled = holding(bundle).changed == 0;
  rank.turn = pinned(bundle) ? Turn::pinned : settled ? Turn::settled : Turn::settling;
  order_.insert(place(bundle));
  count_pages(bundle, rank.next_use, layout_.pages_of(bundle));
}

void Residency::unrank(BundleId bundle) {
  order_.erase(place(bundle));
  count_pages(bundle, ranks_[index_of(bundle)].next_use, -layout_.pages_of(bundle));
}

std::tuple<Residency::Turn, std::int64_t, BundleId> Residency::place(BundleId bundle) const {
  const Rank& rank = ranks_[index_of(bundle)];
  return {rank.turn, rank.rank, bundle};
}

void Residency::count_pages(BundleId bundle, std::int32_t next_use, std::int64_t pages) {
  pages_by_next_use_.add(next_use, pages);
  if (!pinned(bundle)) return;
  pinned_pages_.add(next_use, pages);
  all_pinned_pages_ += pages;
}

std::int64_t Residency::available_pages(std::int32_t until) const {
  const std::int64_t pinned_later = all_pinned_pages_ - pinned_pages_.up_to(until);
  return plan_.pages - pages_by_next_use_.up_to(until) - pinned_later;
}

}  // namespace spillway
