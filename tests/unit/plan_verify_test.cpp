// Plans are held to what they mean: every interleaving that the waits allow computes what the Program says, and each
// wait is there exactly where it is needed.
#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "random_plans.h"
#include "under_sanitizer.h"

namespace spillway {
namespace {

TEST(PlanVerify, AcceptsWhatThePlannerMakesAndEveryInterleavingOfItIsRight) {
  for (std::uint64_t seed = first_seed; seed < first_seed + cases(40); ++seed) {
    for_each_plan_of_any_memory(seed, [&](const Planned& planned) {
      EXPECT_EQ(verify(planned, planned.plan), "");
      EXPECT_EQ(fault_of(planned, {&planned.plan}, 6, seed), "") << dump(planned.plan, planned.layout, planned.program);
    });
    if (testing::Test::HasFailure()) return;
  }
}

// Seeds at which a bundle was evicted and came back to other pages while ops still read it at its one address.
TEST(PlanVerify, ABundleDoesNotComeBackUnderItsReaders) {
  for (const std::uint64_t seed : {20240737U}) {
    for_each_plan(seed, [&](const Planned& planned) {
      EXPECT_EQ(verify(planned, planned.plan), "");
      EXPECT_EQ(fault_of(planned, planned.plan, 30, seed), "");
    });
  }
}

TEST(PlanVerify, RefusesLanesOutOfOrder) {
  for_each_plan_of_any_memory(first_seed, [&](const Planned& planned) {
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      Plan plan = planned.plan;
      if (plan.lanes[lane].size() < 2) continue;
      std::swap(plan.lanes[lane].front(), plan.lanes[lane].back());
      EXPECT_NE(verify(planned, plan), "");
    }
  });
}

// --- Happens-before by brute force ---

// Whether instruction `before` is done when `after` starts, in every interleaving, though it does not wait for it.
class Order {
 public:
  explicit Order(const Plan& plan) : edges_(2 * plan.instrs.size()) {
    for (std::size_t i = 0; i < plan.instrs.size(); ++i) {
      edges_[start(i)].push_back(done(i));
      for (const InstrId wait : plan.instrs[i].after) edges_[done(index_of(wait))].push_back(start(i));
    }
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      for (std::size_t k = 1; k < plan.lanes[lane].size(); ++k) {
        const std::size_t before = index_of(plan.lanes[lane][k - 1]);
        const std::size_t after = index_of(plan.lanes[lane][k]);
        edges_[start(before)].push_back(start(after));
        edges_[done(before)].push_back(done(after));
        const bool commits = plan.instrs[after].kind == Instr::Kind::commit;
        if (commits || runs_ops(static_cast<LaneId>(lane))) edges_[done(before)].push_back(start(after));
      }
    }
  }

  bool holds(std::size_t before, std::size_t after) const {
    std::vector<bool> seen(edges_.size(), false);
    std::vector<std::size_t> open{done(before)};
    while (!open.empty()) {
      const std::size_t node = open.back();
      open.pop_back();
      if (node == start(after)) return true;
      for (const std::size_t next : edges_[node]) {
        if (seen[next]) continue;
        seen[next] = true;
        open.push_back(next);
      }
    }
    return false;
  }

 private:
  static std::size_t start(std::size_t instr) { return 2 * instr; }
  static std::size_t done(std::size_t instr) { return 2 * instr + 1; }
  std::vector<std::vector<std::size_t>> edges_;
};

// What instruction `i` really waits for when it waits for `before`: a write may go on while ops read the same bytes, so
// it is the last that changed them. None when they are those of the entry.
std::optional<std::size_t> cause_of_wait(const Planned& planned, std::size_t i, std::size_t before) {
  const Instr& instr = planned.plan.instrs[i];
  const bool out = instr.kind == Instr::Kind::write || instr.kind == Instr::Kind::down;
  if (!out || planned.plan.instrs[before].kind != Instr::Kind::run) return before;
  if (instr.kind == Instr::Kind::down && planned.plan.instrs[before].lane == LaneId::update) return before;
  for (std::size_t at = before + 1; at > 0; --at) {
    if (changes(planned, planned.plan.instrs[at - 1], instr.stays.front())) return at - 1;
  }
  return std::nullopt;
}

TEST(PlanVerify, AWaitCanBeDroppedExactlyWhenItIsRedundant) {
  std::uint64_t redundant = 0;
  std::uint64_t needed = 0;
  for (std::uint64_t seed = first_seed; seed < first_seed + cases(80); ++seed) {
    std::mt19937_64 random(seed);
    for_each_plan_of_any_memory(seed, [&](const Planned& planned) {
      for (std::size_t i = 0; i < planned.plan.instrs.size(); ++i) {
        const std::vector<InstrId>& after = planned.plan.instrs[i].after;
        if (after.empty() || random() % 2 != 0) continue;
        const std::size_t dropped = random() % after.size();
        const std::size_t before = index_of(after[dropped]);
        Plan plan = planned.plan;
        plan.instrs[i].after.erase(plan.instrs[i].after.begin() + static_cast<std::ptrdiff_t>(dropped));
        const std::string verdict = verify(planned, plan);
        if (const auto cause = cause_of_wait(planned, i, before); !cause || Order(plan).holds(*cause, i)) {
          ++redundant;
          EXPECT_EQ(verdict, "") << "instruction " << i << " need not wait for " << before;
        } else {
          ++needed;
          EXPECT_NE(verdict, "") << "instruction " << i << " must wait for " << before << "\n"
                                 << dump(planned.plan, planned.layout, planned.program);
        }
      }
    });
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(redundant, cases(50));
  EXPECT_GT(needed, cases(500));
}

}  // namespace
}  // namespace spillway
