// Plans whose device has a path of its own to the disk: what goes that way, and that nothing else changes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "plan/direct.h"
#include "plan/tiers.h"
#include "random_plans.h"
#include "under_sanitizer.h"

namespace spillway {
namespace {

constexpr std::uint64_t direct_seed = 5200;

// With the same plan made without such a path.
template <typename Visit>
void for_each_direct_plan(const Visit& visit) {
  for (std::uint64_t seed = direct_seed; seed < direct_seed + cases(120); ++seed) {
    const RandomPrograms programs(seed);
    const Layout layout = programs.layout();
    const std::int64_t most = in_memory_pages(layout, 0);
    for (const std::int64_t device : page_counts(smallest_pages(layout), most)) {
      for (const std::int64_t host : {smallest_host_pages(layout), smallest_host_pages(layout) + most / 4, 2 * most}) {
        SCOPED_TRACE(fmt::format("seed {}, {} device pages, {} host pages", seed, device, host));
        const bool commits = (seed + static_cast<std::uint64_t>(device)) % 2 == 0;
        visit(layout, make_tiered_plan(layout, 0, {device, host}, {.commits = commits}),
              make_tiered_plan(layout, 0, {device, host}, {.commits = commits, .direct = true}));
      }
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(PlanDirect, TheSameBytesGoToDiskAndThoseThatGoDirectlyAreNotCopied) {
  int reading = 0;
  int writing = 0;
  for_each_direct_plan([&](const Layout& layout, const Plan& staged, const Plan& plan) {
    EXPECT_EQ(plan.traffic.read_bytes, staged.traffic.read_bytes);
    EXPECT_EQ(plan.traffic.write_bytes, staged.traffic.write_bytes);
    EXPECT_EQ(plan.up_bytes + plan.direct.read_bytes, staged.up_bytes);
    EXPECT_EQ(plan.down_bytes + plan.direct.write_bytes, staged.down_bytes);
    EXPECT_EQ(plan.lanes[0].size(), staged.lanes[0].size());
    Traffic direct;
    for (const Instr& instr : plan.instrs) {
      if (!is_direct(plan, instr)) continue;
      const Bundle& bundle = layout.bundles[index_of(plan.stays[index_of(instr.stays.front())].bundle)];
      const bool writes = instr.kind == Instr::Kind::write;
      EXPECT_FALSE(writes && bundle.state) << "its sum would be missing";
      (writes ? direct.write_bytes : direct.read_bytes) += bundle.bytes;
    }
    EXPECT_EQ(plan.direct.read_bytes, direct.read_bytes);
    EXPECT_EQ(plan.direct.write_bytes, direct.write_bytes);
    reading += direct.read_bytes > 0 ? 1 : 0;
    writing += direct.write_bytes > 0 ? 1 : 0;
  });
  EXPECT_GT(reading, cases(200));
  EXPECT_GT(writing, cases(8));
}

// Those of random_plans.h rarely write so, since activations are the last to give way.
TEST(PlanDirect, EveryInterleavingOfPlansThatWriteDirectlyIsRightAndTheirMovesMustWait) {
  std::uint64_t plans = 0;
  std::uint64_t needed = 0;
  for (std::uint64_t seed = direct_seed; seed < direct_seed + cases(240); ++seed) {
    const RandomPrograms programs(seed);
    const Layout layout = programs.layout();
    const std::int64_t host = smallest_host_pages(layout);
    const std::int64_t device = smallest_pages(layout);
    for (const std::int64_t more : {0, 4, 8}) {
      SCOPED_TRACE(fmt::format("seed {}, {} device pages, {} host pages", seed, device + more, host));
      const PlanRequest request{.commits = seed % 2 == 0, .direct = true};
      const Planned planned{programs, layout, programs.step(),
                            make_tiered_plan(layout, 0, {device + more, host}, request)};
      if (planned.plan.direct.write_bytes == 0) continue;
      ++plans;
      EXPECT_EQ(verify(planned, planned.plan), "");
      EXPECT_EQ(fault_of(planned, {&planned.plan, &planned.plan, &planned.plan}, 6, seed), "");
      for (std::size_t i = 0; i < planned.plan.instrs.size(); ++i) {
        if (!is_direct(planned.plan, planned.plan.instrs[i])) continue;
        Plan plan = planned.plan;
        plan.instrs[i].after.clear();
        needed += verify(planned, plan).empty() ? 0 : 1;
      }
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(plans, cases(20));
  EXPECT_GT(needed, cases(100));
}

// State is summed where it passes through the host.
TEST(PlanDirect, AWriteOfStatePastTheHostIsRefused) {
  int refused = 0;
  for_each_tiered_plan(first_seed, [&](const Planned& planned) {
    Plan plan = planned.plan;
    for (Instr& instr : plan.instrs) {
      if (instr.kind != Instr::Kind::down) continue;
      const BundleId bundle = plan.stays[index_of(instr.stays.front())].bundle;
      if (!planned.layout.bundles[index_of(bundle)].state) continue;
      const auto write = std::find_if(plan.instrs.begin(), plan.instrs.end(), [&](const Instr& other) {
        return other.kind == Instr::Kind::write && other.stays.front() == instr.stays.back();
      });
      if (write == plan.instrs.end()) continue;
      write->stays.front() = instr.stays.front();
      EXPECT_NE(verify(planned, plan).find("writes state past the host's memory"), std::string::npos);
      ++refused;
      break;
    }
  });
  EXPECT_GT(refused, 0);
}

// A stay of the host that is left has more than one use, or is at a boundary, or is of state that is written.
TEST(PlanDirect, NothingPassesThroughTheHostThatNeedNot) {
  for_each_direct_plan([](const Layout& layout, const Plan&, const Plan& plan) {
    std::vector<std::string> uses(plan.stays.size());
    for (const Instr& instr : plan.instrs) {
      for (const StayId id : instr.stays) uses[index_of(id)] += fmt::format("{} ", static_cast<int>(instr.kind));
    }
    for (const Boundary* boundary : {&plan.entry, &plan.exit}) {
      for (const StayId id : boundary->stays) uses[index_of(id)] += "boundary ";
    }
    const auto pair = [](Instr::Kind first, Instr::Kind last) {
      return fmt::format("{} {} ", static_cast<int>(first), static_cast<int>(last));
    };
    for (std::size_t s = 0; s < plan.stays.size(); ++s) {
      EXPECT_NE(uses[s], "") << "a stay that nothing uses";
      if (plan.stays[s].memory == MemoryId::device) continue;
      EXPECT_NE(uses[s], pair(Instr::Kind::read, Instr::Kind::up));
      const bool state = layout.bundles[index_of(plan.stays[s].bundle)].state;
      EXPECT_TRUE(state || uses[s] != pair(Instr::Kind::down, Instr::Kind::write));
    }
  });
}

TEST(PlanDirect, APlanThatUsesNoDiskIsAsItWas) {
  for_each_direct_plan([](const Layout& layout, const Plan& staged, const Plan& plan) {
    if (staged.traffic.read_bytes + staged.traffic.write_bytes > 0) return;
    ASSERT_EQ(plan.instrs.size(), staged.instrs.size());
    for (std::size_t i = 0; i < plan.instrs.size(); ++i) {
      EXPECT_EQ(plan.instrs[i].after, staged.instrs[i].after);
      EXPECT_EQ(plan.instrs[i].stays, staged.instrs[i].stays);
    }
    EXPECT_EQ(disk_slots_for(layout, std::vector{plan}), disk_slots_for(layout, std::vector{staged}));
  });
}

}  // namespace
}  // namespace spillway
