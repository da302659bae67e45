// Plans of two memories: what they hold, move and count.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "plan/tiers.h"
#include "plan/update_split.h"
#include "random_program.h"

namespace spillway {
namespace {

constexpr std::uint64_t tiers_seed = 4100;

template <typename Visit>
void for_each_budgets_and_plan(const Visit& visit) {
  for (std::uint64_t seed = tiers_seed; seed < tiers_seed + 30; ++seed) {
    const RandomPrograms programs(seed);
    const Layout layout = programs.layout();
    const std::int64_t most = in_memory_pages(layout, 0);
    for (const std::int64_t device : page_counts(smallest_pages(layout), most)) {
      for (const std::int64_t host : {smallest_host_pages(layout), smallest_host_pages(layout) + most / 4, 2 * most}) {
        SCOPED_TRACE(fmt::format("seed {}, {} device pages, {} host pages", seed, device, host));
        visit(layout, TierPages{device, host}, make_tiered_plan(layout, 0, {device, host}, {}));
      }
    }
    if (testing::Test::HasFailure()) return;
  }
}

std::int64_t moved_bytes(const Plan& plan, const Layout& layout, LaneId lane) {
  std::int64_t bytes = 0;
  for (const InstrId id : plan.lanes[static_cast<std::size_t>(lane)]) {
    bytes += layout.bundles[index_of(plan.stays[index_of(plan.instrs[index_of(id)].stays.front())].bundle)].bytes;
  }
  return bytes;
}

TEST(PlanTiers, OpsAndCopiesAreThoseOfThePlanOfTheDeviceAlone) {
  for_each_budgets_and_plan([](const Layout& layout, const TierPages& pages, const Plan& plan) {
    const Plan alone = make_plan(layout, 0, pages.device, {});
    EXPECT_EQ(plan.lanes[0].size(), alone.lanes[0].size());
    EXPECT_EQ(plan.lanes[static_cast<std::size_t>(LaneId::up)].size(), alone.lanes[1].size());
    EXPECT_EQ(plan.lanes[static_cast<std::size_t>(LaneId::down)].size(), alone.lanes[2].size());
    EXPECT_EQ(plan.up_bytes, alone.traffic.read_bytes);
    EXPECT_EQ(plan.down_bytes, alone.traffic.write_bytes);
    EXPECT_EQ(plan.peak_device_pages, alone.peak_pages);
  });
}

TEST(PlanTiers, TrafficIsTheSumOfTheMovesOfEachLane) {
  for_each_budgets_and_plan([](const Layout& layout, const TierPages& pages, const Plan& plan) {
    EXPECT_EQ(plan.traffic.read_bytes, moved_bytes(plan, layout, LaneId::read));
    EXPECT_EQ(plan.traffic.write_bytes, moved_bytes(plan, layout, LaneId::write));
    EXPECT_EQ(plan.up_bytes, moved_bytes(plan, layout, LaneId::up));
    EXPECT_EQ(plan.down_bytes, moved_bytes(plan, layout, LaneId::down));
    EXPECT_EQ(plan.device_pages, pages.device);
    EXPECT_LE(plan.peak_pages, pages.host);
    EXPECT_LE(plan.peak_device_pages, pages.device);
  });
}

TEST(PlanTiers, NothingTouchesTheDiskWhereTheHostHasPagesEnough) {
  int copying = 0;
  for_each_budgets_and_plan([&](const Layout& layout, const TierPages& pages, const Plan& plan) {
    if (pages.host < 2 * in_memory_pages(layout, 0)) return;
    EXPECT_EQ(plan.traffic.read_bytes + plan.traffic.write_bytes, 0);
    EXPECT_EQ(disk_slots_for(layout, std::vector{plan}), 0);
    copying += plan.up_bytes > 0 ? 1 : 0;
  });
  EXPECT_GT(copying, 100);
}

TEST(PlanTiers, TheDiskIsUsedInTheSmallestHost) {
  int spilling = 0;
  for_each_budgets_and_plan([&](const Layout& layout, const TierPages& pages, const Plan& plan) {
    if (pages.host > smallest_host_pages(layout) || pages.device > smallest_pages(layout)) return;
    spilling += plan.traffic.read_bytes > 0 && disk_slots_for(layout, std::vector{plan}) > 0 ? 1 : 0;
  });
  EXPECT_GT(spilling, 20);
}

TEST(PlanTiers, NothingMovesWhereTheDeviceHoldsAll) {
  const RandomPrograms programs(tiers_seed);
  const Layout layout = programs.layout();
  const Plan plan = make_tiered_plan(layout, 0, {in_memory_pages(layout, 0), smallest_host_pages(layout)}, {});
  EXPECT_EQ(plan.lanes[0].size(), plan.instrs.size());
  EXPECT_EQ(disk_slots_for(layout, std::vector{plan}), 0);
}

// Updates on the host, all of them.
template <typename Visit>
void for_each_plan_that_updates_below(const Visit& visit) {
  for (std::uint64_t seed = tiers_seed; seed < tiers_seed + 30; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const RandomPrograms programs(seed, true);
    const Layout layout = programs.layout();
    const std::vector<bool> below = updates_below(update_groups(programs.step(), layout, 0), layout, 0, 0);
    const TierPages pages{smallest_pages(layout), smallest_host_pages(layout, 0, below)};
    visit(programs, layout, below, make_tiered_plan(layout, 0, pages, {.below = &below}));
    if (testing::Test::HasFailure()) return;
  }
}

TEST(PlanTiers, AnUpdateOnTheHostIsAnOpOfItsLaneAndItsStateStaysThere) {
  std::int64_t updates = 0;
  std::int64_t apart = 0;
  for_each_plan_that_updates_below(
      [&](const RandomPrograms& programs, const Layout& layout, const std::vector<bool>& below, const Plan& plan) {
        const ProgramLayout& step = layout.programs.front();
        std::vector<bool> above(layout.bundles.size(), false);  // an op of the device touches it
        std::int64_t ops = 0;
        for (std::size_t s = 0; s < below.size(); ++s) {
          ops += below[s] ? step.segments.begin[s + 1] - step.segments.begin[s] : 0;
          for (const Use& use : step.uses[s]) above[index_of(use.bundle)] = above[index_of(use.bundle)] || !below[s];
        }
        EXPECT_EQ(std::ssize(plan.lanes[static_cast<std::size_t>(LaneId::update)]), ops);
        EXPECT_EQ(std::ssize(plan.lanes[0]) + ops, std::ssize(programs.step().ops));
        for (const Stay& stay : plan.stays) {
          EXPECT_TRUE(above[index_of(stay.bundle)] || stay.memory == MemoryId::host);
        }
        updates += ops;
        apart += std::count(above.begin(), above.begin() + layout.state_bundles, false);
      });
  EXPECT_GT(updates, 100);
  EXPECT_GT(apart, 5);
}

TEST(PlanTiers, GroupsOfUpdatesShareNothingThatTheyWrite) {
  for_each_plan_that_updates_below(
      [](const RandomPrograms& programs, const Layout& layout, const std::vector<bool>&, const Plan&) {
        const std::vector<UpdateGroup> groups = update_groups(programs.step(), layout, 0);
        std::vector<std::int32_t> owner(layout.bundles.size(), -1);
        std::int32_t number = 0;
        for (const UpdateGroup& group : groups) {
          for (const std::int32_t s : group.segments) {
            for (const Use& use : layout.programs.front().uses[static_cast<std::size_t>(s)]) {
              std::int32_t& of = owner[index_of(use.bundle)];
              if (!use.writes) continue;
              EXPECT_TRUE(of < 0 || of == number);
              of = number;
            }
          }
          ++number;
        }
        const auto count = [](const std::vector<bool>& below) { return std::count(below.begin(), below.end(), true); };
        EXPECT_EQ(count(updates_below(groups, layout, 0, 1)), 0);
        EXPECT_GE(count(updates_below(groups, layout, 0, 0)), count(updates_below(groups, layout, 0, 0.5)));
      });
}

// Groups of updates, none of whose state crosses the link in a plan with so many device pages.
std::int64_t groups_that_stay(const std::vector<UpdateGroup>& groups, const Layout& layout, std::int64_t device_pages) {
  const Plan plan = make_tiered_plan(layout, 0, {device_pages, 2 * in_memory_pages(layout, 0)}, {});
  std::vector<bool> copied(layout.bundles.size(), false);
  for (const Instr& instr : plan.instrs) {
    if (is_copy(instr.kind)) copied[index_of(plan.stays[index_of(instr.stays.front())].bundle)] = true;
  }
  return std::count_if(groups.begin(), groups.end(), [&](const UpdateGroup& group) {
    return std::none_of(group.segments.begin(), group.segments.end(), [&](std::int32_t s) {
      const auto& uses = layout.programs.front().uses[static_cast<std::size_t>(s)];
      return std::any_of(uses.begin(), uses.end(),
                         [&](const Use& use) { return use.writes && copied[index_of(use.bundle)]; });
    });
  });
}

TEST(PlanTiers, TheStateOfUpdatesStaysOnTheDeviceAsFarAsItHasRoom) {
  std::int64_t all = 0;
  std::int64_t stay_in_least = 0;
  std::int64_t stay_in_half = 0;
  for (std::uint64_t seed = tiers_seed; seed < tiers_seed + 30; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const RandomPrograms programs(seed, true);
    const Layout layout = programs.layout();
    const std::vector<UpdateGroup> groups = update_groups(programs.step(), layout, 0);
    const std::int64_t least = smallest_pages(layout);
    const std::int64_t most = in_memory_pages(layout, 0);
    EXPECT_EQ(groups_that_stay(groups, layout, most), std::ssize(groups));
    all += std::ssize(groups);
    stay_in_least += groups_that_stay(groups, layout, least);
    stay_in_half += groups_that_stay(groups, layout, (least + most) / 2);
  }
  EXPECT_LT(stay_in_least, stay_in_half);
  EXPECT_LT(stay_in_half, all);
}

}  // namespace
}  // namespace spillway
