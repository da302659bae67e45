// What lies in memory while a plan is made: free pages in the order in which they came free, and the bundles in memory
// in the order in which they would give way. Who begins a stay waits for what was done to its bundle; what was done to
// its pages is known when the plan is finished (plan/stay_spans.h).
#pragma once

#include <array>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "plan/plan.h"
#include "plan/policy.h"
#include "plan/schedule.h"
#include "plan/uses.h"

namespace spillway {

// A bundle and the instructions that last used it, in memory or not.
struct Holding {
  StayId stay = StayId::none;           // none: not in memory
  bool dirty = false;                   // memory is newer than disk
  InstrId last_write = InstrId::none;   // the move that made the copy on disk
  InstrId last_read = InstrId::none;    // the move that brought it in
  Accesses runs = no_accesses;          // the last runs of this stay
  std::int32_t last_touch = -1;         // the segment of the last of them
  InstrId last_change = InstrId::none;  // the last run of this stay that changed it
  std::int32_t changed_in = -1;         // the segment of that run
  bool spilled = false;                 // it was written
  std::int64_t changed = 0;             // while it settles, the number of its last change
};

// Pages by the segment of their next use: a Fenwick tree.
class PagesByNextUse {
 public:
  explicit PagesByNextUse(std::int32_t segments) : sums_(2 * static_cast<std::size_t>(segments) + 2, 0) {}
  void add(std::int32_t next_use, std::int64_t pages);  // never_used counts as the last
  std::int64_t up_to(std::int32_t segment) const;

 private:
  std::vector<std::int64_t> sums_;
};

class Residency {
 public:
  // Of the request `pinned` counts. All outlive it.
  Residency(const Layout& layout, const Uses& uses, const VictimPolicy& policy, const PlanRequest& request,
            const Schedule& schedule, Plan& plan);

  Holding& holding(BundleId bundle) { return holdings_[index_of(bundle)]; }
  bool has(BundleId bundle) const { return holdings_[index_of(bundle)].stay != StayId::none; }
  std::int64_t free_pages() const { return static_cast<std::int64_t>(free_.size()); }
  // Free pages and those of bundles whose next use is later than segment `until`, the pinned ones left out.
  std::int64_t available_pages(std::int32_t until) const;
  std::int64_t giving_pages() const { return plan_.pages - all_pinned_pages_; }  // all but the pinned
  std::vector<BundleId> bundles() const;                                         // in memory, ascending

  // Gives the bundle a stay on free pages. `now`: the segment about to run.
  void take(BundleId bundle, std::int32_t now);
  void release(BundleId bundle);
  // After segment s touched it; `changed`: and changed it, and it stays.
  void touched(BundleId bundle, std::int32_t s, bool changed);
  // The first instruction of a segment that uses a bundle, which is in memory: it begins the stay that it creates, and
  // waits for what others do with it.
  void begin_use(const Use& use, Instr& first);
  Candidate candidate(BundleId bundle) const;  // in memory
  // The first in memory to give way whose next use is later than segment `until`; a pinned one where there is no other.
  BundleId victim(std::int32_t until) const;

 private:
  // Of bundles that give way, later ones first.
  enum class Turn : std::uint8_t { pinned, settling, settled };
  // As kept in the order of victims.
  struct Rank {
    Turn turn = Turn::settled;
    std::int64_t rank = 0;
    std::int32_t next_use = -1;
  };

  void rank(BundleId bundle, std::int32_t after);
  void unrank(BundleId bundle);
  void settle(BundleId bundle);  // it is no longer of what was changed last
  std::tuple<Turn, std::int64_t, BundleId> place(BundleId bundle) const;
  void count_pages(BundleId bundle, std::int32_t next_use, std::int64_t pages);
  bool pinned(BundleId bundle) const { return pinned_ != nullptr && (*pinned_)[index_of(bundle)]; }

  const Layout& layout_;
  const Uses& uses_;
  const VictimPolicy& policy_;
  const std::vector<bool>* pinned_;
  const Schedule& schedule_;
  Plan& plan_;
  std::deque<PageId> free_;  // in the order in which they came free
  std::vector<Holding> holdings_;
  std::vector<Rank> ranks_;                                   // by bundle in memory
  std::set<std::tuple<Turn, std::int64_t, BundleId>> order_;  // the last gives way first
  std::int64_t changes_ = 0;                                  // so far
  std::map<std::int64_t, BundleId> settling_;  // in memory and changed last, by the number of that change
  std::int64_t settling_pages_ = 0;            // of these
  PagesByNextUse pages_by_next_use_;
  PagesByNextUse pinned_pages_;
  std::int64_t all_pinned_pages_ = 0;  // in memory
};

}  // namespace spillway
