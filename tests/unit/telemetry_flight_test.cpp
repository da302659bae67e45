// The flight record: what the process leaves behind, and what it says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "base/error.h"
#include "scratch_folder.h"
#include "telemetry/flight_record.h"

namespace spillway {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

Catalog small_catalog() {
  Catalog catalog;
  catalog.arena_bytes = 1 << 20;
  const std::uint16_t linear = catalog.intern("linear");
  const std::uint16_t forward = catalog.intern("forward");
  const std::uint16_t mlp = catalog.intern("mlp");
  catalog.programs.push_back({{linear, forward, mlp, 3, 1, 0}, {linear, forward, mlp, -1, -1, 2}});
  catalog.bundles.push_back({MemoryTag::weights, true, 8192, "a \"quoted\" name"});
  catalog.plans.push_back(
      {"train", 0, {{EventLane::compute, 0, {0}}, {EventLane::read, 0, {0}}}, {{0, 8192, true, false}}, 0.5, 0.25});
  return catalog;
}

TEST(Catalog, ReadsBackFromItsText) {
  const Catalog catalog = small_catalog();
  const Catalog again = catalog_from_json(json_of(catalog));
  EXPECT_EQ(json_of(again), json_of(catalog));
  EXPECT_EQ(again.describe_op(0, 0), "linear of forward layer 3 mlp micro-batch 1");
  EXPECT_EQ(again.describe_op(0, 1), "linear of forward mlp#2");
  EXPECT_EQ(again.describe_move(EventLane::read, 0), "the read of a \"quoted\" name (8 KiB)");
  EXPECT_EQ(again.plans[0].instrs[1].lane, EventLane::read);
  EXPECT_EQ(again.plans[0].predicted_seconds, 0.5);
}

TEST(Catalog, SaysWhenTheTextIsNotOne) {
  EXPECT_THROW(catalog_from_json("{}"), UserError);
  EXPECT_THROW(catalog_from_json("{\"version\": 77}"), UserError);
  EXPECT_THROW(catalog_from_json("no"), UserError);
}

TEST(Catalog, NumbersOutOfRangeAreSaidAsNumbers) {
  const Catalog catalog;
  EXPECT_EQ(catalog.describe_op(3, 4), "op 4");
  EXPECT_EQ(catalog.describe_bundle(-1), "bundle -1");
}

TEST(FlightRecord, TellsWhatAKilledProcessWasDoing) {
  const ScratchFolder folder;
  const auto path = folder.path() / flight_file_name;
  const pid_t child = ::fork();
  if (child == 0) {
    FlightFile flight(path, ring_capacities_for(10, 1));
    flight.describe(small_catalog());
    EventRecorder& recorder = flight.recorder();
    flight.step_done(1, 5);
    flight.committed(1);
    recorder.set_step(2);
    recorder.step_begin();
    recorder.plan_begin({2, 0, 2}, 2);
    recorder.move_submit({2, 0, 2}, 1, EventLane::read, 0, 8192, 0, 1);
    recorder.op_begin({2, 0, 2}, 0, 0);
    recorder.op_end({2, 0, 2}, 0, 0);
    recorder.op_begin({2, 0, 2}, 1, 1);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));

  const FlightRecord record = read_flight(folder.path());
  EXPECT_FALSE(record.process_alive);
  EXPECT_EQ(record.end, FlightEnd::running);
  EXPECT_EQ(record.events.size(), 6U);
  const FlightState state = state_of(record.events);
  EXPECT_EQ(state.step, 2);
  EXPECT_EQ(state.last_op.subject, 0);
  EXPECT_EQ(state.current_op.subject, 1);
  ASSERT_EQ(state.moves.size(), 1U);
  EXPECT_EQ(state.moves[0].instr, 1);
  const std::vector<std::string> story = story_of(record);
  EXPECT_THAT(story, Contains(HasSubstr("ended from outside")));
  EXPECT_THAT(story, Contains("1 of 5 steps were done"));
  EXPECT_THAT(story, Contains("last op finished: linear of forward layer 3 mlp micro-batch 1, in step 2"));
  EXPECT_THAT(story, Contains(HasSubstr("op in progress: linear of forward mlp#2")));
  EXPECT_THAT(story, Contains(HasSubstr("move in progress: the read of a \"quoted\" name")));
  EXPECT_THAT(story, Contains(HasSubstr("last commit: step 1")));
}

TEST(FlightRecord, AFinishedRunSaysSo) {
  const ScratchFolder folder;
  {
    FlightFile flight(folder.path() / flight_file_name, ring_capacities_for(1, 1));
    flight.recorder().step_begin();
    flight.ended(FlightEnd::finished);
  }
  EXPECT_THAT(story_of(read_flight(folder.path())), Contains(HasSubstr("the run finished")));
}

TEST(FlightRecord, WhatIsNoneIsRefused) {
  const ScratchFolder folder;
  EXPECT_THROW(read_flight(folder.path()), UserError);
  const auto path = folder.path() / flight_file_name;
  std::ofstream(path) << std::string(10000, 'x');
  EXPECT_THROW(read_flight(path), UserError);
  { FlightFile flight(path, ring_capacities_for(10, 1)); }
  EXPECT_NO_THROW(read_flight(path));
  std::filesystem::resize_file(path, 8192);
  EXPECT_THROW(read_flight(path), UserError);
  EXPECT_THROW(FlightFile("/no/such/folder/flight.bin", ring_capacities_for(1, 1)), DeviceError);
}

}  // namespace
}  // namespace spillway
