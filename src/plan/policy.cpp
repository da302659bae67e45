#include "plan/policy.h"

#include <algorithm>
#include <queue>
#include <unordered_set>

#include "base/error.h"
#include "plan/crowding.h"

namespace spillway {
namespace {

// Belady's rule (IBM Systems Journal 5, 1966), exact here because the whole step is known.
class Belady : public VictimPolicy {
 public:
  std::int32_t lookahead_segments() const override { return 64; }
};

// And what it says nothing of: that moves take time. The shares are those of the shortest steps in the simulator over a
// grid of models, budgets and disks (plan_bench).
class FarthestFirst : public Belady {
 public:
  explicit FarthestFirst(double settling) : settling_(settling) {}

  double share_left_by_reads() const override { return 0.5; }
  double settling_share() const override { return settling_; }
  std::int64_t written_for_reads() const override { return 2; }

 private:
  double settling_;
};

// As a cache does it that knows nothing of the step: what was used longest ago gives way, and nothing is read before it
// is asked for.
class LeastRecentlyUsed : public VictimPolicy {
 public:
  std::int64_t rank(const Candidate& candidate) const override { return -std::int64_t{candidate.last_use}; }
  bool ranks_by_next_use() const override { return false; }
  std::int32_t lookahead_segments() const override { return 0; }
  bool paced() const override { return true; }
};

// All state lives on disk and comes by for each use, read a few segments ahead. After ZeRO-Infinity (arXiv 2104.07857),
// which prefetches the next parameters in the order of their use.
class EverythingOnDisk : public VictimPolicy {
 public:
  explicit EverythingOnDisk(const Layout& layout) : layout_(layout) {}

  std::int32_t lookahead_segments() const override { return 4; }
  bool paced() const override { return true; }
  bool leaves(const Candidate& candidate) const override {
    return layout_.bundles[index_of(candidate.bundle)].state &&
           candidate.next_use - candidate.last_use > lookahead_segments();
  }

 private:
  const Layout& layout_;
};

// TERAIO's greedy (arXiv 2506.06472): of all periods in which a bundle is not used, those are taken for being on disk
// that relieve memory most for the bytes they move, until what is left fits. Its time is segments here, and moves are
// not reserved on the link: a plan knows no rates.
class Lifetime : public VictimPolicy {
 public:
  Lifetime(const Layout& layout, std::int32_t program, std::int64_t pages, const Uses& uses)
      : segments_(static_cast<std::size_t>(uses.segments())) {
    Crowding crowding(alive_pages(layout, program, uses), pages);
    choose(crowding);
  }

  std::int32_t lookahead_segments() const override { return 12; }
  bool paced() const override { return true; }
  bool leaves(const Candidate& candidate) const override {
    return chosen_.contains(key(candidate.bundle, candidate.last_use));
  }

 private:
  // Not used after segment `begin` and before `end`, which may lie in the next step.
  struct Period {
    BundleId bundle = BundleId::none;
    std::int32_t begin = 0;
    std::int32_t end = 0;
    std::int64_t pages = 0;
  };

  static std::int64_t key(BundleId bundle, std::int32_t segment) {
    return (static_cast<std::int64_t>(index_of(bundle)) << 32) + segment;
  }

  // By segment, of what is in memory where nothing leaves; and the periods in which something could.
  std::vector<std::int64_t> alive_pages(const Layout& layout, std::int32_t program, const Uses& uses) {
    const ProgramLayout& step = layout.programs[static_cast<std::size_t>(program)];
    std::vector<std::int64_t> alive(segments_, 0);
    std::vector<std::int64_t> change(segments_ + 1, 0);
    for (std::int32_t s = 0; s < uses.segments(); ++s) {
      for (const Use& use : step.uses[static_cast<std::size_t>(s)]) {
        const std::int64_t pages = layout.pages_of(use.bundle);
        const std::int32_t next = uses.next(use.bundle, s);
        alive[static_cast<std::size_t>(s)] += pages;
        if (next == never_used) continue;
        const Period period{use.bundle, s, next, pages};
        for_each_range(period, [&](std::size_t begin, std::size_t end) {
          change[begin] += pages;
          change[end] -= pages;
        });
        if (next - s > 1) periods_.push_back(period);
      }
    }
    std::int64_t between_uses = 0;
    for (std::size_t s = 0; s < segments_; ++s) alive[s] += between_uses += change[s];
    return alive;
  }

  // Of segments of the step: two where the period goes on in the next step.
  template <typename Function>
  void for_each_range(const Period& period, const Function& function) const {
    const auto begin = static_cast<std::size_t>(period.begin) + 1;
    const auto end = static_cast<std::size_t>(period.end);
    if (begin < segments_) function(begin, std::min(end, segments_));
    if (end > segments_) function(0, end - segments_);
  }

  // Bytes moved cancel out: pages relieved in each segment of need, for as many pages moved.
  std::int64_t benefit(const Period& period, const Crowding& crowding) const {
    std::int64_t segments = 0;
    for_each_range(period, [&](std::size_t begin, std::size_t end) { segments += crowding.crowded(begin, end); });
    return segments;
  }

  // Benefits only fall while periods are taken, so the best is known once its benefit is up to date.
  void choose(Crowding& crowding) {
    std::priority_queue<std::pair<std::int64_t, std::size_t>> order;
    for (std::size_t i = 0; i < periods_.size(); ++i) order.emplace(benefit(periods_[i], crowding), i);
    while (!order.empty() && order.top().first > 0) {
      const auto [before, i] = order.top();
      order.pop();
      const Period& period = periods_[i];
      const std::int64_t now = benefit(period, crowding);
      if (now < before) {
        order.emplace(now, i);
        continue;
      }
      chosen_.insert(key(period.bundle, period.begin));
      for_each_range(period, [&](std::size_t begin, std::size_t end) { crowding.relieve(begin, end, period.pages); });
    }
  }

  std::size_t segments_;
  std::vector<Period> periods_;
  std::unordered_set<std::int64_t> chosen_;
};

}  // namespace

std::optional<Policy> policy_named(std::string_view name) {
  const auto* const at = std::ranges::find(all_policies, name, [](Policy policy) { return name_of(policy); });
  return at == all_policies.end() ? std::nullopt : std::optional(*at);
}

std::string_view name_of(Policy policy) {
  switch (policy) {
    case Policy::automatic: return "farthest";
    case Policy::everything_on_disk: return "everything-on-disk";
    case Policy::lru: return "lru";
    case Policy::lifetime: return "lifetime";
    case Policy::belady: return "belady";
  }
  return "?";
}

std::unique_ptr<VictimPolicy> make_policy(const PlanRequest& request, const Layout& layout, std::int32_t program,
                                          std::int64_t pages, const Uses& uses) {
  switch (request.policy) {
    case Policy::automatic: return std::make_unique<FarthestFirst>(request.settling);
    case Policy::everything_on_disk: return std::make_unique<EverythingOnDisk>(layout);
    case Policy::lru: return std::make_unique<LeastRecentlyUsed>();
    case Policy::lifetime: return std::make_unique<Lifetime>(layout, program, pages, uses);
    case Policy::belady: return std::make_unique<Belady>();
  }
  SPILLWAY_CHECK(false, "policy {} is unknown", static_cast<int>(request.policy));
}

}  // namespace spillway
