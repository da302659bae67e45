#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/bytes.h"
#include "plan/tiers.h"
#include "random_program.h"
#include "sim/simulate.h"

namespace spillway {
namespace {

constexpr std::uint64_t simulate_seed = 4100;

// Visits plans of random Programs at their smallest size, with rates at which computing and disk take about as long.
template <typename Visit>
void for_each_plan(const Visit& visit) {
  for (std::uint64_t seed = simulate_seed; seed < simulate_seed + 60; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const RandomPrograms programs(seed);
    const Layout layout = programs.layout();
    const Plan plan = make_plan(layout, 0, smallest_pages(layout), {.commits = seed % 2 == 0});
    StepRates rates;
    for (std::size_t i = 0; i < programs.step().ops.size(); ++i) {
      rates.op_seconds.push_back(0.5 + static_cast<double>((seed * 31 + i * 17) % 10) / 10);
    }
    const double op_seconds = static_cast<double>(rates.op_seconds.size());
    rates.mixed_bytes_per_second =
        static_cast<double>(1 + plan.traffic.read_bytes + plan.traffic.write_bytes) / op_seconds;
    rates.read_bytes_per_second = rates.mixed_bytes_per_second;
    rates.write_bytes_per_second = rates.mixed_bytes_per_second;
    visit(plan, layout, rates);
    if (testing::Test::HasFailure()) return;
  }
}

double start_of(const Timeline& timeline, InstrId id) { return timeline.starts[index_of(id)]; }
double end_of(const Timeline& timeline, InstrId id) { return timeline.ends[index_of(id)]; }

TEST(Simulate, EveryInstructionWaitsForWhatItNamesAndForItsLane) {
  for_each_plan([](const Plan& plan, const Layout& layout, const StepRates& rates) {
    const Timeline timeline = simulate(plan, layout, rates);
    for (std::size_t i = 0; i < plan.instrs.size(); ++i) {
      const auto id = static_cast<InstrId>(i);
      for (const InstrId wait : plan.instrs[i].after) EXPECT_GE(start_of(timeline, id), end_of(timeline, wait));
      EXPECT_LE(end_of(timeline, id), timeline.seconds);
    }
    const auto& ops = plan.lanes[static_cast<std::size_t>(LaneId::compute)];
    for (std::size_t i = 1; i < ops.size(); ++i) EXPECT_GE(start_of(timeline, ops[i]), end_of(timeline, ops[i - 1]));
    for (const auto& lane : plan.lanes) {  // moves overlap, but start and end in order
      for (std::size_t i = 1; i < lane.size(); ++i) {
        EXPECT_GE(start_of(timeline, lane[i]), start_of(timeline, lane[i - 1]));
        EXPECT_GE(end_of(timeline, lane[i]), end_of(timeline, lane[i - 1]));
      }
    }
  });
}

TEST(Simulate, NoStepIsFasterThanItsLowerBoundAndItsPartsAddUp) {
  for_each_plan([](const Plan& plan, const Layout& layout, const StepRates& rates) {
    const Timeline timeline = simulate(plan, layout, rates);
    const double tolerance = 1e-9 * timeline.seconds;
    EXPECT_GE(timeline.seconds, timeline.lower_bound_seconds() - tolerance);
    double computing = 0;
    for (const double seconds : rates.op_seconds) computing += seconds;
    EXPECT_NEAR(timeline.compute_seconds, computing, tolerance);
    const InstrId last = plan.lanes[static_cast<std::size_t>(LaneId::compute)].back();
    EXPECT_NEAR(end_of(timeline, last), timeline.compute_seconds + timeline.stalled_seconds, tolerance);
  });
}

TEST(Simulate, WhatIsMadeAgainIsNoPartOfTheLowerBound) {
  for_each_plan([](const Plan& plan, const Layout& layout, StepRates rates) {
    const double bound = simulate(plan, layout, rates).lower_bound_seconds();
    rates.repeated_seconds = rates.op_seconds.front();
    const Timeline timeline = simulate(plan, layout, rates);
    const double once = timeline.compute_seconds - rates.op_seconds.front();
    EXPECT_DOUBLE_EQ(timeline.lower_bound_seconds(), std::max({once, timeline.disk_seconds, timeline.link_seconds}));
    EXPECT_LE(timeline.lower_bound_seconds(), bound);
  });
}

TEST(Simulate, AnInstantDiskLeavesComputingAloneAndAFasterOneNeverHurts) {
  for_each_plan([](const Plan& plan, const Layout& layout, StepRates rates) {
    const double slow = simulate(plan, layout, rates).seconds;
    for (double* rate : {&rates.read_bytes_per_second, &rates.write_bytes_per_second, &rates.mixed_bytes_per_second}) {
      *rate *= 2;
    }
    EXPECT_LE(simulate(plan, layout, rates).seconds, slow * (1 + 1e-9));
    for (double* rate : {&rates.read_bytes_per_second, &rates.write_bytes_per_second, &rates.mixed_bytes_per_second}) {
      *rate = 1e300;
    }
    const Timeline instant = simulate(plan, layout, rates);
    EXPECT_NEAR(instant.seconds, instant.compute_seconds, 1e-9 * instant.seconds);
    EXPECT_EQ(instant.lower_bound_seconds(), instant.compute_seconds);
  });
}

TEST(Simulate, ABusyDiskSlowsComputingByItsFactor) {
  for_each_plan([](const Plan& plan, const Layout& layout, StepRates rates) {
    const double apart = simulate(plan, layout, rates).seconds;
    rates.compute_slowdown = 1.5;
    const double beside = simulate(plan, layout, rates).seconds;
    EXPECT_GE(beside, apart * (1 - 1e-9));
    EXPECT_LE(beside, 1.5 * apart * (1 + 1e-9));
  });
}

TEST(Simulate, ComputingSlowsTheDiskByItsFactor) {
  int slower = 0;
  for_each_plan([&](const Plan& plan, const Layout& layout, StepRates rates) {
    const double apart = simulate(plan, layout, rates).seconds;
    rates.disk_slowdown = 1.5;
    const double beside = simulate(plan, layout, rates).seconds;
    EXPECT_GE(beside, apart * (1 - 1e-9));
    EXPECT_LE(beside, 1.5 * apart * (1 + 1e-9));
    slower += beside > apart ? 1 : 0;
    for (double& seconds : rates.op_seconds) seconds = 0;  // nothing computes while the disk is busy
    const double alone = simulate(plan, layout, rates).seconds;
    rates.disk_slowdown = 1;
    EXPECT_NEAR(simulate(plan, layout, rates).seconds, alone, 1e-9 * alone);
  });
  EXPECT_GT(slower, 0);
}

TEST(Simulate, SmallCostsAreAddedWhereTheyFall) {
  for_each_plan([](const Plan& plan, const Layout& layout, StepRates rates) {
    const double free = simulate(plan, layout, rates).seconds;
    std::int64_t begun_pages = 0;
    for (const Instr& instr : plan.instrs) {
      for (const StayId stay : instr.begins) begun_pages += std::ssize(plan.stays[index_of(stay)].pages);
    }
    const auto moves = static_cast<double>(plan.lanes[1].size() + plan.lanes[2].size());
    rates.request_seconds = 0.25;
    rates.attach_seconds = 0.125;
    rates.wake_seconds = 0.0625;
    const double with = simulate(plan, layout, rates).seconds;
    EXPECT_GE(with, free * (1 - 1e-9));
    EXPECT_LE(with, free + 0.25 * moves + 0.25 * static_cast<double>(begun_pages) +
                        0.0625 * static_cast<double>(plan.instrs.size()) + 1e-9 * free);
    if (begun_pages > 0) {
      EXPECT_GT(with, free);
    }
  });
}

// Up to 2 MiB, as much as the kernel moves at once.
TEST(Simulate, PagesThatMoveTogetherAreAttachedAtTheCostOfOne) {
  Layout layout;
  layout.bundles = {{0}};
  Plan plan;
  plan.pages = 3;
  plan.stays = {{BundleId{0}, {PageId{2}, PageId{0}, PageId{1}}}};
  plan.instrs.resize(1);
  plan.instrs[0].kind = Instr::Kind::read;
  plan.instrs[0].lane = LaneId::read;
  plan.instrs[0].stays = plan.instrs[0].begins = {StayId{0}};
  plan.lanes[static_cast<std::size_t>(LaneId::read)] = {InstrId{0}};
  StepRates rates;
  rates.read_bytes_per_second = 1e300;
  rates.attach_seconds = 0.125;
  const auto attach_seconds = [&](std::int64_t page_bytes) {
    layout.page_bytes = page_bytes;
    layout.bundles[0].bytes = layout.address_bytes = 3 * page_bytes;
    return simulate(plan, layout, rates).attach_seconds;
  };
  EXPECT_DOUBLE_EQ(attach_seconds(4 * kib), 2 * 0.125);
  EXPECT_DOUBLE_EQ(attach_seconds(2 * mib), 3 * 0.125);
}

TEST(Simulate, ACommitTakesNoTimeAndWaitsForTheWritesBeforeIt) {
  int commits = 0;
  for_each_plan([&](const Plan& plan, const Layout& layout, StepRates rates) {
    rates.wake_seconds = 0.25;
    const Timeline timeline = simulate(plan, layout, rates);
    const auto& writes = plan.lanes[static_cast<std::size_t>(LaneId::write)];
    for (std::size_t i = 0; i < writes.size(); ++i) {
      if (plan.instrs[index_of(writes[i])].kind != Instr::Kind::commit) continue;
      ++commits;
      const double begin = start_of(timeline, writes[i]);
      EXPECT_EQ(end_of(timeline, writes[i]), begin);
      EXPECT_EQ(begin, i == 0 ? 0 : end_of(timeline, writes[i - 1]));
    }
  });
  EXPECT_GT(commits, 0);
}

// What a run measured, put back in, gives that run: the simulator adds and forgets nothing of its own.
TEST(Simulate, MeasuredMovesGiveTheRunTheyWereMeasuredIn) {
  for_each_plan([](const Plan& plan, const Layout& layout, const StepRates& rates) {
    const Timeline run = simulate(plan, layout, rates);
    StepRates measured;
    measured.op_seconds = rates.op_seconds;
    measured.move_seconds.resize(plan.instrs.size());
    for (const auto* lane : {&plan.lanes[1], &plan.lanes[2]}) {
      double before = 0;
      for (const InstrId id : *lane) {
        measured.move_seconds[index_of(id)] = end_of(run, id) - std::max(start_of(run, id), before);
        before = end_of(run, id);
      }
    }
    EXPECT_NEAR(simulate(plan, layout, measured).seconds, run.seconds, 1e-6 * run.seconds);
  });
}

TEST(Simulate, RunsThatFollowEachOtherSettleAndNoneIsShorterThanItsOps) {
  for_each_plan([](const Plan& plan, const Layout& layout, const StepRates& rates) {
    const std::vector<PlannedRun> runs(8, {&plan, &rates});
    const std::vector<Timeline> timelines = simulate_runs(runs, layout);
    const Timeline steady = simulate_steady(plan, layout, rates);
    const double tolerance = 1e-9 * steady.seconds;
    for (const Timeline& timeline : timelines) {
      EXPECT_NEAR(timeline.seconds, timeline.compute_seconds + timeline.stalled_seconds, tolerance);
    }
    EXPECT_NEAR(steady.seconds, timelines.back().seconds, 0.01 * steady.seconds);
    EXPECT_LE(timelines.front().seconds, simulate(plan, layout, rates).seconds + tolerance);
  });
}

// Plans with a device at its smallest size, in host pages enough, with ops and disk that take no time.
template <typename Visit>
void for_each_tiered_plan(const Visit& visit) {
  for (std::uint64_t seed = simulate_seed; seed < simulate_seed + 40; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const RandomPrograms programs(seed);
    const Layout layout = programs.layout();
    const std::int64_t host = seed % 2 == 0 ? 2 * in_memory_pages(layout, 0) : smallest_host_pages(layout);
    const Plan plan = make_tiered_plan(layout, 0, {smallest_pages(layout), host}, {});
    StepRates rates;
    rates.op_seconds.assign(programs.step().ops.size(), 0);
    rates.read_bytes_per_second = rates.write_bytes_per_second = rates.mixed_bytes_per_second = 1e300;
    rates.link = {1000, 500, 0};
    visit(plan, layout, rates);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Simulate, ALinkTakesItsBytesByItsRateInEachDirection) {
  for_each_tiered_plan([](const Plan& plan, const Layout& layout, StepRates rates) {
    const Timeline timeline = simulate(plan, layout, rates);
    const double up = static_cast<double>(plan.up_bytes) / 1000;
    const double down = static_cast<double>(plan.down_bytes) / 500;
    const double tolerance = 1e-9 * (up + down);
    EXPECT_NEAR(timeline.up_seconds, up, tolerance);
    EXPECT_NEAR(timeline.down_seconds, down, tolerance);
    EXPECT_NEAR(timeline.link_seconds, std::max(up, down), tolerance);
    EXPECT_GE(timeline.seconds, timeline.lower_bound_seconds() - tolerance);
    EXPECT_LE(timeline.seconds, up + down + tolerance);
    EXPECT_EQ(timeline.lower_bound_seconds(), std::max(timeline.link_seconds, timeline.compute_seconds));
    rates.link.copy_seconds = 0.25;
    const auto copies = static_cast<double>(plan.lanes[3].size() + plan.lanes[4].size());
    EXPECT_LE(simulate(plan, layout, rates).seconds, timeline.seconds + 0.25 * copies + tolerance);
  });
}

// What is mapped where it was costs nothing, and what is mapped costs it once.
TEST(Simulate, PagesThatAreMappedAnewTakeTheirTime) {
  double first = 0;
  double later = 0;
  for_each_tiered_plan([&](const Plan& plan, const Layout& layout, StepRates rates) {
    const double bare = simulate(plan, layout, rates).seconds;
    const double bare_steady = simulate_steady(plan, layout, rates).seconds;
    rates.link.map_seconds = 1e-3;
    first += simulate(plan, layout, rates).seconds - bare;
    later += simulate_steady(plan, layout, rates).seconds - bare_steady;
  });
  EXPECT_GT(first, 0);
  EXPECT_GE(later, -1e-6);
  EXPECT_LT(later, first / 10);
}

// The disk takes no time here.
TEST(Simulate, ADirectMoveIsNoFasterThanTheLink) {
  int moving = 0;
  for (std::uint64_t seed = simulate_seed; seed < simulate_seed + 40; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const RandomPrograms programs(seed);
    const Layout layout = programs.layout();
    const TierPages pages{smallest_pages(layout), smallest_host_pages(layout)};
    const Plan plan = make_tiered_plan(layout, 0, pages, {.direct = true});
    StepRates rates;
    rates.op_seconds.assign(programs.step().ops.size(), 0);
    rates.read_bytes_per_second = rates.write_bytes_per_second = rates.mixed_bytes_per_second = 1e300;
    rates.link = {1000, 500, 0};
    const Timeline timeline = simulate(plan, layout, rates);
    const double reads = static_cast<double>(plan.direct.read_bytes) / 1000;
    const double writes = static_cast<double>(plan.direct.write_bytes) / 500;
    const double up = static_cast<double>(plan.up_bytes) / 1000;
    const double down = static_cast<double>(plan.down_bytes) / 500;
    const double tolerance = 1e-9 * (1 + reads + writes + up + down);
    EXPECT_GE(timeline.read_seconds, reads - tolerance);
    EXPECT_LE(timeline.read_seconds, reads + up + tolerance);
    EXPECT_GE(timeline.write_seconds, writes - tolerance);
    EXPECT_LE(timeline.write_seconds, writes + down + tolerance);
    EXPECT_NEAR(timeline.link_seconds, std::max(reads + up, writes + down), tolerance);
    EXPECT_GE(timeline.seconds, timeline.lower_bound_seconds() - tolerance);
    moving += reads > 0 ? 1 : 0;
  }
  EXPECT_GT(moving, 20);
}

// A direct read of 4000 bytes and a copy up of 1000, which wait for nothing, over a link of 1000 a second.
TEST(Simulate, ADirectMoveSharesTheLinkWithACopyBesideIt) {
  Layout layout;
  layout.page_bytes = 4096;
  layout.bundles = {{4000}, {1000}};
  Plan plan;
  plan.stays = {{BundleId{0}, {}, MemoryId::device}, {BundleId{1}, {}, MemoryId::device}, {BundleId{1}, {}}};
  plan.instrs.resize(2);
  plan.instrs[0].kind = Instr::Kind::read;
  plan.instrs[0].lane = LaneId::read;
  plan.instrs[0].stays = {StayId{0}};
  plan.instrs[1].kind = Instr::Kind::up;
  plan.instrs[1].lane = LaneId::up;
  plan.instrs[1].stays = {StayId{1}, StayId{2}};
  plan.lanes[static_cast<std::size_t>(LaneId::read)] = {InstrId{0}};
  plan.lanes[static_cast<std::size_t>(LaneId::up)] = {InstrId{1}};
  plan.traffic.read_bytes = plan.direct.read_bytes = 4000;
  plan.up_bytes = 1000;
  StepRates rates;
  rates.read_bytes_per_second = 1e300;
  rates.link = {1000, 1000, 0};
  const Timeline fast_disk = simulate(plan, layout, rates);
  EXPECT_DOUBLE_EQ(end_of(fast_disk, InstrId{1}), 2) << "half of it each";
  EXPECT_DOUBLE_EQ(end_of(fast_disk, InstrId{0}), 5) << "then alone";
  EXPECT_DOUBLE_EQ(fast_disk.lower_bound_seconds(), 5);
  rates.read_bytes_per_second = 200;
  const Timeline slow_disk = simulate(plan, layout, rates);
  EXPECT_DOUBLE_EQ(end_of(slow_disk, InstrId{1}), 1.25) << "what the disk leaves of it";
  EXPECT_DOUBLE_EQ(end_of(slow_disk, InstrId{0}), 20);
}

TEST(Simulate, BothDirectionsOfALinkAreBusyAtOnce) {
  double apart = 0;
  double seconds = 0;
  for_each_tiered_plan([&](const Plan& plan, const Layout& layout, const StepRates& rates) {
    const Timeline timeline = simulate_steady(plan, layout, rates);
    apart += timeline.up_seconds + timeline.down_seconds;
    seconds += timeline.seconds;
  });
  EXPECT_LT(seconds, 0.92 * apart);
}

// Two ops of four and of one second, one on the device and one on the host, that wait for nothing.
TEST(Simulate, OpsThatShareTheProcessorAreHalfAsFastBesideEachOther) {
  Layout layout;
  layout.page_bytes = 4096;
  Plan plan;
  for (const std::int32_t op : {0, 1}) {
    Instr instr;
    instr.kind = Instr::Kind::run;
    instr.op = static_cast<OpId>(op);
    const auto lane = static_cast<std::size_t>(op == 0 ? LaneId::compute : LaneId::update);
    instr.lane = static_cast<LaneId>(lane);
    plan.lanes[lane].push_back(static_cast<InstrId>(op));
    plan.instrs.push_back(instr);
  }
  StepRates rates;
  rates.op_seconds = {4, 1};
  rates.host_seconds = {4, 1};
  const Timeline apart = simulate(plan, layout, rates);
  EXPECT_DOUBLE_EQ(end_of(apart, InstrId{0}), 4);
  EXPECT_DOUBLE_EQ(end_of(apart, InstrId{1}), 1);
  rates.shares_processor = true;
  const Timeline shared = simulate(plan, layout, rates);
  EXPECT_DOUBLE_EQ(end_of(shared, InstrId{1}), 2);
  EXPECT_DOUBLE_EQ(end_of(shared, InstrId{0}), 5) << "both for two seconds, then alone";
}

}  // namespace
}  // namespace spillway
