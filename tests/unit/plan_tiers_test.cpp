// Plans of two memories: what they hold, move and count.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "plan/tiers.h"
#include "random_program.h"

namespace spillway {
namespace {

constexpr std::uint64_t first_seed = 4100;

template <typename Visit>
void for_each_plan(const Visit& visit) {
  for (std::uint64_t seed = first_seed; seed < first_seed + 30; ++seed) {
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
  for_each_plan([](const Layout& layout, const TierPages& pages, const Plan& plan) {
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
  for_each_plan([](const Layout& layout, const TierPages& pages, const Plan& plan) {
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
  for_each_plan([&](const Layout& layout, const TierPages& pages, const Plan& plan) {
    if (pages.host < 2 * in_memory_pages(layout, 0)) return;
    EXPECT_EQ(plan.traffic.read_bytes + plan.traffic.write_bytes, 0);
    EXPECT_EQ(disk_slots_for(layout, std::vector{plan}), 0);
    copying += plan.up_bytes > 0 ? 1 : 0;
  });
  EXPECT_GT(copying, 100);
}

TEST(PlanTiers, TheDiskIsUsedInTheSmallestHost) {
  int spilling = 0;
  for_each_plan([&](const Layout& layout, const TierPages& pages, const Plan& plan) {
    if (pages.host > smallest_host_pages(layout) || pages.device > smallest_pages(layout)) return;
    spilling += plan.traffic.read_bytes > 0 && disk_slots_for(layout, std::vector{plan}) > 0 ? 1 : 0;
  });
  EXPECT_GT(spilling, 20);
}

TEST(PlanTiers, NothingMovesWhereTheDeviceHoldsAll) {
  const RandomPrograms programs(first_seed);
  const Layout layout = programs.layout();
  const Plan plan = make_tiered_plan(layout, 0, {in_memory_pages(layout, 0), smallest_host_pages(layout)}, {});
  EXPECT_EQ(plan.lanes[0].size(), plan.instrs.size());
  EXPECT_EQ(disk_slots_for(layout, std::vector{plan}), 0);
}

}  // namespace
}  // namespace spillway
