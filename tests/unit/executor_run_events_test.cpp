// What a wait of the compute lane is put down to.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "executor/run_events.h"
#include "plan/tiers.h"
#include "random_program.h"

namespace spillway {
namespace {

constexpr auto up = static_cast<std::size_t>(LaneId::up);
constexpr auto read = static_cast<std::size_t>(LaneId::read);

// A plan with a device as the first run of a stream.
struct FirstRun {
  explicit FirstRun(const Layout& layout, Plan of) : plan(std::move(of)) {
    waits.emplace_back(plan, layout);
    Trail trail(layout.bundles.size(), static_cast<std::size_t>(plan.all_pages()));
    std::vector<std::vector<PageId>> held;
    for (const StayId id : plan.entry.stays) held.push_back(plan.stays[index_of(id)].pages);
    run = std::make_shared<const Following>(trail.follow(waits.front(), held));
  }

  const Instr& instr(InstrId id) const { return plan.instrs[index_of(id)]; }

  Plan plan;
  std::vector<PlanWaits> waits;
  std::shared_ptr<const Following> run;
};

// The last wait that was begun while all other lanes were done.
Event wait_at(const FirstRun& first, const Layout& layout, InstrId id, std::int64_t copies, std::int64_t reads) {
  EventRecorder recorder(ring_capacities_for(10, 1, true));
  RunEvents events(&recorder, layout, first.waits);
  events.begin(first.run);
  LaneClock done{};
  for (std::size_t lane = 0; lane < lane_count; ++lane) done[lane] = std::ssize(first.plan.lanes[lane]);
  done[up] = copies;
  done[read] = reads;
  events.waits(*first.run, id, first.run->wait_of(id), done);
  std::vector<Event> recorded;
  recorder.ring(EventSource::compute).read(0, recorded);
  return recorded.empty() || recorded.back().kind != EventKind::wait_begin ? Event{} : recorded.back();
}

TEST(RunEvents, AWaitForACopyThatWaitsForTheDiskIsForTheDisk) {
  int behind_reads = 0;
  for (std::uint64_t seed = 70; seed < 90; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const RandomPrograms programs(seed);
    const Layout layout = programs.layout();
    const FirstRun first(layout,
                         make_tiered_plan(layout, 0, {smallest_pages(layout), smallest_host_pages(layout)}, {}));
    for (const InstrId id : first.plan.lanes[0]) {
      const std::int64_t copies = first.run->wait_of(id)[up];
      if (copies == 0) continue;
      const InstrId copy = first.plan.lanes[up][static_cast<std::size_t>(copies - 1)];
      const std::int64_t reads = first.run->wait_of(copy)[read];
      // The copy goes on: it is waited for itself.
      const Event copying = wait_at(first, layout, id, copies - 1, std::ssize(first.plan.lanes[read]));
      EXPECT_EQ(copying.lane, EventLane::up);
      EXPECT_EQ(copying.value, copies - 1);
      if (reads == 0 || first.run->wait_of(id)[read] > reads - 1) continue;
      ++behind_reads;
      const Event reading = wait_at(first, layout, id, copies - 1, reads - 1);
      EXPECT_EQ(reading.lane, EventLane::read);
      EXPECT_EQ(reading.value, reads - 1);
      const Instr& of = first.instr(first.plan.lanes[read][static_cast<std::size_t>(reads - 1)]);
      EXPECT_EQ(reading.subject, static_cast<std::int32_t>(first.plan.stays[index_of(of.stays.front())].bundle));
    }
  }
  EXPECT_GT(behind_reads, 20);
}

}  // namespace
}  // namespace spillway
