#include <gtest/gtest.h>

#include "telemetry/memory_by_tag.h"

namespace spillway {
namespace {

// Reads a bundle of 100 bytes, uses it in an op, writes it, and commits.
Catalog committing() {
  Catalog catalog;
  catalog.arena_bytes = 1000;
  catalog.bundles = {{MemoryTag::weights, true, 90, "w"}};
  CatalogPlan plan;
  plan.instrs = {
      {EventLane::read, 0, {0}}, {EventLane::compute, 0, {0}}, {EventLane::write, 0, {0}}, {EventLane::write, -1, {}}};
  plan.stays = {{0, 100, false, false}};
  catalog.plans = {plan};
  return catalog;
}

Event event_of(EventKind kind, std::uint16_t run, std::int32_t instr, std::int64_t value) {
  Event event;
  event.kind = kind;
  event.run = run;
  event.plan = 0;
  event.instr = instr;
  event.subject = 0;
  event.other = 0;
  event.value = value;
  return event;
}

// Nothing is told of a commit's end; a run must not be kept for that, or memory grows with every step.
TEST(MemoryByTag, ForgetsRunsWhoseCommitIsNeverToldOf) {
  const Catalog catalog = committing();
  MemoryByTag memory(catalog);
  for (std::uint16_t run = 1; run <= 50; ++run) {
    memory.take(event_of(EventKind::plan_begin, run, -1, 0));
    memory.take(event_of(EventKind::stay_begin, run, 0, 100));
    EXPECT_EQ(memory.bytes()[static_cast<std::size_t>(MemoryTag::weights)], 100);
    memory.take(event_of(EventKind::move_complete, run, 0, 0));
    memory.take(event_of(EventKind::op_end, run, 1, 0));
    EXPECT_EQ(memory.runs_under_way(), 1);
    memory.take(event_of(EventKind::move_complete, run, 2, 0));
    EXPECT_EQ(memory.used_bytes(), 0);
    EXPECT_EQ(memory.runs_under_way(), 0) << "run " << run;
  }
}

// A copy up gives the bundle pages of the device beside those it has in the host; a copy down takes them away.
TEST(MemoryByTag, ABundleMayBeInBothMemories) {
  Catalog catalog = committing();
  catalog.device_bytes = 500;
  CatalogPlan& plan = catalog.plans.front();
  plan.stays = {{0, 100, true, true, EventMemory::host}, {0, 100, false, false, EventMemory::device}};
  plan.instrs = {{EventLane::up, 0, {1, 0}}, {EventLane::compute, 0, {1}}, {EventLane::down, 0, {1, 0}}};
  MemoryByTag memory(catalog);
  const auto used = [&](EventMemory where) { return memory.used_bytes(where); };
  memory.take(event_of(EventKind::plan_begin, 1, -1, 0));
  EXPECT_EQ(used(EventMemory::host), 100);
  EXPECT_EQ(used(EventMemory::device), 0);
  Event begins = event_of(EventKind::stay_begin, 1, 0, 100);
  begins.other = 1;
  memory.take(begins);
  EXPECT_EQ(used(EventMemory::host), 100);
  EXPECT_EQ(used(EventMemory::device), 100);
  EXPECT_EQ(memory.bytes(EventMemory::device)[static_cast<std::size_t>(MemoryTag::unused)], 400);
  memory.take(event_of(EventKind::move_complete, 1, 0, 0));
  memory.take(event_of(EventKind::op_end, 1, 1, 0));
  EXPECT_EQ(used(EventMemory::device), 100);
  memory.take(event_of(EventKind::move_complete, 1, 2, 0));
  EXPECT_EQ(used(EventMemory::device), 0);
  EXPECT_EQ(used(EventMemory::host), 100) << "it stays";
  EXPECT_EQ(memory.runs_under_way(), 0);
}

}  // namespace
}  // namespace spillway
