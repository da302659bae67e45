// What policies promise beside what all plans do.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "plan/policy.h"
#include "plan_interpreter.h"
#include "random_program.h"

namespace spillway {
namespace {

constexpr std::uint64_t policy_seed = 7300;

// Visits plans of random Programs under every policy, from the smallest size to where everything fits.
template <typename Visit>
void for_each_policy_and_plan(const Visit& visit) {
  for (std::uint64_t seed = policy_seed; seed < policy_seed + 25; ++seed) {
    const RandomPrograms programs(seed);
    const Layout layout = programs.layout();
    for (const std::int64_t pages : page_counts(smallest_pages(layout), in_memory_pages(layout, 0))) {
      for (const Policy policy : all_policies) {
        SCOPED_TRACE(fmt::format("seed {}, {} pages, {}", seed, pages, name_of(policy)));
        PlanRequest request;
        request.policy = policy;
        visit(programs, layout, make_plan(layout, 0, pages, request), policy);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(PlanPolicy, PlansOfAllPoliciesHold) {
  for_each_policy_and_plan([](const RandomPrograms& programs, const Layout& layout, const Plan& plan, Policy) {
    EXPECT_EQ(verify(plan, layout, programs.step()), "");
    EXPECT_EQ(verify_follows(plan, plan, layout), "");
  });
}

TEST(PlanPolicy, PlansHoldWhateverIsLeftToWhatWasChangedLast) {
  for (std::uint64_t seed = policy_seed; seed < policy_seed + 25; ++seed) {
    const RandomPrograms programs(seed);
    const Layout layout = programs.layout();
    for (const std::int64_t pages : page_counts(smallest_pages(layout), in_memory_pages(layout, 0))) {
      for (const double settling : {0.0, 0.1, 0.7, 1.0}) {
        const Plan plan = make_plan(layout, 0, pages, {.settling = settling});
        ASSERT_EQ(verify(plan, layout, programs.step()), "")
            << "seed " << seed << ", " << pages << " pages, " << settling;
        ASSERT_EQ(verify_follows(plan, plan, layout), "") << "seed " << seed << ", " << pages << " pages, " << settling;
      }
    }
  }
}

TEST(PlanPolicy, EverythingOnDiskKeepsNoStateThatIsNotNeededSoon) {
  for_each_policy_and_plan([](const RandomPrograms&, const Layout& layout, const Plan& plan, Policy policy) {
    if (policy != Policy::everything_on_disk) return;
    const Uses uses(layout, 0);
    for (const StayId stay : plan.exit.stays) {
      const BundleId bundle = plan.stays[index_of(stay)].bundle;
      const std::int32_t next = uses.next(bundle, uses.segments() - 1);
      if (next == never_used) continue;  // this Program does not touch it
      EXPECT_LT(next - uses.segments(), 8) << "bundle " << index_of(bundle);
    }
  });
}

// Where each run of an op comes in the compute lane, and where reads begin that wait for nothing but their pages.
TEST(PlanPolicy, LruReadsOnlyWhenComputingHasComeThere) {
  for_each_policy_and_plan([](const RandomPrograms&, const Layout&, const Plan& plan, Policy policy) {
    if (policy != Policy::lru) return;
    InstrId newest_run = InstrId::none;
    for (std::size_t i = 0; i < plan.instrs.size(); ++i) {
      const Instr& instr = plan.instrs[i];
      if (instr.kind == Instr::Kind::run) newest_run = static_cast<InstrId>(i);
      if (instr.kind != Instr::Kind::read || newest_run == InstrId::none) continue;
      EXPECT_TRUE(std::find(instr.after.begin(), instr.after.end(), newest_run) != instr.after.end())
          << "read " << i << " does not wait for run " << index_of(newest_run);
    }
  });
}

TEST(PlanPolicy, LruMovesMoreThanTheFarthestFirst) {
  std::int64_t automatic = 0;
  std::int64_t lru = 0;
  for_each_policy_and_plan([&](const RandomPrograms&, const Layout&, const Plan& plan, Policy policy) {
    const std::int64_t bytes = plan.traffic.read_bytes + plan.traffic.write_bytes;
    if (policy == Policy::automatic) automatic += bytes;
    if (policy == Policy::lru) lru += bytes;
  });
  EXPECT_LT(automatic, lru);
}

TEST(PlanPolicy, LifetimeMovesNothingWhereEverythingFits) {
  for (std::uint64_t seed = policy_seed; seed < policy_seed + 25; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const RandomPrograms programs(seed);
    const Layout layout = programs.layout();
    PlanRequest request;
    request.policy = Policy::lifetime;
    const Plan plan = make_plan(layout, 0, in_memory_pages(layout, 0), request);
    EXPECT_EQ(plan.traffic.read_bytes + plan.traffic.write_bytes, 0);
  }
}

}  // namespace
}  // namespace spillway
