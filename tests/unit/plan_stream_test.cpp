// Plans follow each other with no barrier between: in every interleaving that the waits of both allow, each computes
// what its Program says.
#include <gtest/gtest.h>

#include "random_plans.h"
#include "under_sanitizer.h"

namespace spillway {
namespace {

bool commits_of(const Plan& plan) {
  return std::any_of(plan.instrs.begin(), plan.instrs.end(),
                     [](const Instr& instr) { return instr.kind == Instr::Kind::commit; });
}

TEST(PlanStream, PlansFollowEachOtherWithNoBarrierBetween) {
  for (std::uint64_t seed = first_seed + 500; seed < first_seed + 500 + cases(6); ++seed) {
    const Plan* step = nullptr;
    Plan kept;
    for_each_plan(seed, [&](const Planned& planned) {
      if (planned.plan.program == 0) {
        kept = planned.plan;
        step = &kept;
        if (!commits_of(kept)) return;
        EXPECT_EQ(fault_of(planned, {step, step, step}, 3, seed), "");
        return;
      }
      const Residents boundary = residents_of(*step);
      const Plan commit = make_plan(planned.layout, 0, step->pages, {.commits = true, .entry = &boundary});
      EXPECT_EQ(verify(commit, planned.layout, planned.programs.step()), "");
      const Plan* look = &planned.plan;
      for (const auto& plans : {std::vector{step, step, step},
                                {step, look, step},
                                {look, look, step},
                                {look, step},
                                {step, &commit, step, &commit},
                                {&commit, look, &commit}}) {
        for (std::size_t i = 1; i < plans.size(); ++i) {
          EXPECT_EQ(verify_follows(*plans[i - 1], *plans[i], planned.layout), "");
        }
        EXPECT_EQ(fault_of(planned, plans, 3, seed), "");
      }
    });
    if (testing::Test::HasFailure()) return;
  }
}

TEST(PlanStream, PlansWithADeviceFollowEachOtherWithNoBarrierBetween) {
  for (std::uint64_t seed = first_seed + 600; seed < first_seed + 600 + cases(6); ++seed) {
    for_each_tiered_plan(seed, [&](const Planned& planned) {
      const TierPages pages{planned.plan.device_pages, planned.plan.pages};
      const TierResidents boundary = tier_residents_of(planned.plan);
      const bool direct = moves_directly(planned.plan);
      const Plan commit = make_tiered_plan(planned.layout, 0, pages, {.commits = true, .direct = direct}, &boundary);
      const Plan look = make_tiered_plan(planned.layout, 1, pages, {.direct = direct}, &boundary);
      EXPECT_EQ(verify(commit, planned.layout, planned.programs.step()), "");
      EXPECT_EQ(verify(look, planned.layout, planned.programs.look()), "");
      const Plan* step = &planned.plan;
      for (const auto& plans : {std::vector{step, step, step},
                                {step, &look, step},
                                {&look, &look, step},
                                {step, &commit, step, &commit},
                                {&commit, &look, &commit}}) {
        for (std::size_t i = 1; i < plans.size(); ++i) {
          EXPECT_EQ(verify_follows(*plans[i - 1], *plans[i], planned.layout), "");
        }
        EXPECT_EQ(fault_of(planned, plans, 2, seed), "");
      }
    });
    if (testing::Test::HasFailure()) return;
  }
}

TEST(PlanStream, PlansThatUpdateOnTheHostFollowEachOtherWithNoBarrierBetween) {
  std::uint64_t updates = 0;
  for (std::uint64_t seed = first_seed + 700; seed < first_seed + 700 + cases(12); ++seed) {
    for_each_split_plan(seed, [&](const Planned& planned, const std::vector<bool>& below) {
      EXPECT_EQ(verify(planned, planned.plan), "");
      updates += planned.plan.lanes[static_cast<std::size_t>(LaneId::update)].size();
      const TierPages pages{planned.plan.device_pages, planned.plan.pages};
      const TierResidents boundary = tier_residents_of(planned.plan);
      const PlanRequest request{.commits = true, .below = &below, .direct = moves_directly(planned.plan)};
      const Plan commit = make_tiered_plan(planned.layout, 0, pages, request, &boundary);
      const Plan on_device = make_tiered_plan(planned.layout, 0, pages, {}, &boundary);
      const Plan look = make_tiered_plan(planned.layout, 1, pages, {}, &boundary);
      EXPECT_EQ(verify(commit, planned.layout, planned.programs.step()), "");
      EXPECT_EQ(verify(on_device, planned.layout, planned.programs.step()), "");
      const Plan* step = &planned.plan;
      for (const auto& plans : {std::vector{step, step, step},
                                {step, &look, step},
                                {step, &on_device, step},
                                {step, &commit, step, &commit}}) {
        for (std::size_t i = 1; i < plans.size(); ++i) {
          EXPECT_EQ(verify_follows(*plans[i - 1], *plans[i], planned.layout), "");
        }
        EXPECT_EQ(fault_of(planned, plans, 2, seed), "");
      }
    });
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(updates, cases(500));
}

// In pages of the host alone where there are none of a device; `of`: at the boundary of this plan.
Plan plan_in(const Layout& layout, std::int32_t program, const TierPages& pages, const Plan* of) {
  if (pages.device > 0) {
    const TierResidents boundary = of != nullptr ? tier_residents_of(*of) : TierResidents();
    return make_tiered_plan(layout, program, pages, {}, of != nullptr ? &boundary : nullptr);
  }
  const Residents boundary = of != nullptr ? residents_of(*of) : Residents();
  return make_plan(layout, program, pages.host, {.entry = of != nullptr ? &boundary : nullptr});
}

// What a plan does not find though it is in the host at its boundary is of no use to it, and whoever asks is told so.
void expect_dead_where_not_found(const Plan& owner, const Plan& plan, const Layout& layout) {
  const std::vector<bool> dead_below = dead_below_on_entry(plan, layout);
  const auto& dead = layout.programs[static_cast<std::size_t>(plan.program)].dead_on_entry;
  std::vector<bool> found(layout.bundles.size(), false);
  for (const StayId id : plan.entry.stays) {
    const Stay& stay = plan.stays[index_of(id)];
    if (stay.memory == MemoryId::host) found[index_of(stay.bundle)] = true;
  }
  for (const Held& held : residents_of(owner)) {
    const std::size_t b = index_of(held.bundle);
    EXPECT_TRUE(found[b] || dead[b] || dead_below[b]) << "bundle " << b << " of program " << plan.program;
  }
}

TEST(PlanStream, StateThatNoCommitHoldsIsMadeUsedUpAndForgotten) {
  for (std::uint64_t seed = first_seed + 800; seed < first_seed + 800 + cases(15); ++seed) {
    const RandomPrograms programs(seed, false, true);
    const Layout layout = programs.layout();
    const std::int64_t smallest = smallest_pages(layout);
    const std::int64_t host = smallest_host_pages(layout);
    const std::int64_t room = std::max<std::int64_t>(0, in_memory_pages(layout, 0) - smallest);
    for (const TierPages& pages :
         {TierPages{0, smallest}, TierPages{0, smallest + room / 4}, TierPages{smallest, host},
          TierPages{smallest + room / 4, host}, TierPages{smallest + room / 2, host + room / 4},
          TierPages{smallest + room / 4, host + 2 * room}}) {
      SCOPED_TRACE(fmt::format("seed {}, {} device pages, {} host pages", seed, pages.device, pages.host));
      const Plan step = plan_in(layout, 0, pages, nullptr);
      const Plan look = plan_in(layout, 1, pages, &step);
      const Plan next = plan_in(layout, 2, pages, &step);
      const Plan flush = plan_in(layout, 3, pages, &step);
      for (const Plan* plan : {&step, &look, &next, &flush}) {
        EXPECT_EQ(verify(*plan, layout, *programs.programs()[static_cast<std::size_t>(plan->program)]), "");
        if (plan != &step) expect_dead_where_not_found(step, *plan, layout);
      }
      const Planned planned{programs, layout, programs.step(), step};
      for (const auto& plans : {std::vector{&step, &next, &next, &flush, &look, &step},
                                {&step, &flush, &step, &flush},
                                {&step, &look, &step, &next}}) {
        for (std::size_t i = 1; i < plans.size(); ++i) EXPECT_EQ(verify_follows(*plans[i - 1], *plans[i], layout), "");
        EXPECT_EQ(fault_of(planned, plans, 2, seed), "");
      }
    }
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace spillway
