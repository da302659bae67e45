// The watch: what the observer hears while a step goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>

#include "base/error.h"
#include "file_size_limit.h"
#include "recording_observer.h"
#include "scratch_folder.h"
#include "telemetry/run_watch.h"

namespace spillway {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Catalog one_op() {
  Catalog catalog;
  catalog.arena_bytes = 1 << 20;
  const std::uint16_t linear = catalog.intern("linear");
  const std::uint16_t forward = catalog.intern("forward");
  catalog.programs.push_back({{linear, forward, catalog.intern("mlp"), 3, -1, 0}});
  catalog.bundles.push_back({MemoryTag::weights, true, 8192, "model.norm.weight"});
  catalog.plans.push_back(
      {"train", 0, {{EventLane::compute, 0, {0}}, {EventLane::read, 0, {0}}}, {{0, 8192, false, false}}, 0.01, 0.005});
  return catalog;
}

class Waiting : public RecordingObserver {
 public:
  void live(const LiveStatus& status) override {
    const std::lock_guard lock(mutex_);
    statuses.push_back(status);
    changed_.notify_all();
    if (throws) throw UserError("the observer has had enough");
  }
  void slow(std::string_view sentence) override {
    const std::lock_guard lock(mutex_);
    slow_sentences.emplace_back(sentence);
    changed_.notify_all();
  }
  template <typename Condition>
  bool wait_until(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return condition(*this); });
  }

  std::vector<LiveStatus> statuses;
  std::vector<std::string> slow_sentences;
  bool throws = false;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

struct Watched {
  explicit Watched(Waiting& observer) : watch(observer) {
    watch.open({.capacities = ring_capacities_for(10, 2), .output_dir = folder.path(), .slow_seconds = 0.05});
    watch.describe(one_op());
  }
  ScratchFolder folder;
  RunWatch watch;
};

StepRecord first_of_two_steps(RunWatch& watch) {
  watch.step_begins(1, 2);
  StepRecord record;
  record.step = 1;
  record.total_steps = 2;
  constexpr std::int32_t plans[] = {0};
  watch.step_ended(record, plans, 0);
  return record;
}

TEST(RunWatch, ASlowStepSaysWhatItWaitsForWhileItHappens) {
  Waiting observer;
  Watched run(observer);
  run.watch.step_begins(1, 10);
  run.watch.recorder()->plan_begin({1, 0, 1}, 1);
  run.watch.recorder()->wait_begin({1, 0, 1}, 0, EventLane::read, 0, 0);
  ASSERT_TRUE(observer.wait_until([](const Waiting& o) { return !o.slow_sentences.empty(); }));
  EXPECT_THAT(observer.slow_sentences.front(), HasSubstr("step 1 has taken"));
  EXPECT_THAT(observer.slow_sentences.front(), HasSubstr("waits for the read of model.norm.weight"));
}

TEST(RunWatch, ASlowOpIsNamed) {
  Waiting observer;
  Watched run(observer);
  run.watch.step_begins(1, 10);
  run.watch.recorder()->plan_begin({1, 0, 1}, 1);
  run.watch.recorder()->op_begin({1, 0, 1}, 0, 0);
  ASSERT_TRUE(observer.wait_until([](const Waiting& o) { return !o.slow_sentences.empty(); }));
  EXPECT_THAT(observer.slow_sentences.front(), HasSubstr("computing linear of forward layer 3 mlp"));
}

TEST(RunWatch, TellsHowTheStepGoes) {
  Waiting observer;
  Watched run(observer);
  run.watch.begin(RunPhase::train);
  run.watch.step_begins(4, 10);
  run.watch.recorder()->plan_begin({4, 0, 1}, 1);
  run.watch.recorder()->stay_begin(EventLane::read, {4, 0, 1}, 1, 0, 8192, 0);
  run.watch.recorder()->move_submit({4, 0, 1}, 1, EventLane::read, 0, 8192, 0, 1);
  run.watch.recorder()->move_complete({4, 0, 1}, 1, EventLane::read, 0, 8192, 0, 0);
  run.watch.recorder()->op_begin({4, 0, 1}, 0, 0);
  ASSERT_TRUE(observer.wait_until(
      [](const Waiting& o) { return !o.statuses.empty() && o.statuses.back().part == "forward layer 3 mlp"; }));
  const LiveStatus& status = observer.statuses.back();
  EXPECT_EQ(status.step, 4);
  EXPECT_EQ(status.total_steps, 10);
  EXPECT_EQ(status.phase, RunPhase::train);
  EXPECT_EQ(status.memory_bytes[0], 8192);
  EXPECT_EQ(status.memory_bytes[4], (1 << 20) - 8192);
  EXPECT_GT(status.read_bytes_per_second, 0);
}

TEST(RunWatch, WhatTheObserverThrowsEndsTheRun) {
  Waiting observer;
  observer.throws = true;
  Watched run(observer);
  ASSERT_TRUE(observer.wait_until([](const Waiting& o) { return !o.statuses.empty(); }));
  bool thrown = false;
  for (int i = 0; i < 6000 && !thrown; ++i) {
    try {
      run.watch.observer().note("hello");
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    } catch (const UserError&) {
      thrown = true;
    }
  }
  EXPECT_TRUE(thrown);
}

// No more may be written to the file than it has: as with a file system that became full, or `ulimit -f`.
TEST(RunWatch, WithoutRoomForItsOpsTheRunGoesOn) {
  Waiting observer;
  const ScratchFolder folder;
  RunWatch watch(observer);
  watch.open({.capacities = ring_capacities_for(10, 2), .output_dir = folder.path()});
  const FileSizeLimit limit(std::filesystem::file_size(folder.path() / flight_file_name));
  watch.describe(one_op());
  watch.begin(RunPhase::train);
  EXPECT_TRUE(first_of_two_steps(watch).totals.has_value());
  EXPECT_THAT(observer.notes, ElementsAre(AllOf(HasSubstr(flight_file_name), HasSubstr("no timeline"))));
}

// Of a step that is taken back, or completes a deferred update, there are two.
TEST(RunWatch, AStepIsForetoldWhatItsPlansTakeTogether) {
  Waiting observer;
  const ScratchFolder folder;
  RunWatch watch(observer);
  watch.open({.capacities = ring_capacities_for(10, 2), .output_dir = folder.path()});
  Catalog catalog = one_op();
  catalog.plans.resize(3, catalog.plans.front());
  catalog.plans[1].predicted_seconds = 0.04;
  catalog.plans[1].lower_bound_seconds = 0.02;
  catalog.plans[2].predicted_seconds = catalog.plans[2].lower_bound_seconds = 0;  // unknown
  watch.describe(std::move(catalog));
  const auto record_of = [&](const std::vector<std::int32_t>& plans) {
    watch.step_begins(1, 2);
    StepRecord record;
    record.step = 1;
    record.total_steps = 2;
    watch.step_ended(record, plans, 0);
    return record;
  };
  EXPECT_DOUBLE_EQ(record_of({0}).predicted_seconds.value_or(0), 0.01);
  const StepRecord both = record_of({0, 1});
  EXPECT_DOUBLE_EQ(both.predicted_seconds.value_or(0), 0.05);
  EXPECT_DOUBLE_EQ(both.lower_bound_seconds.value_or(0), 0.025);
  const StepRecord unknown = record_of({0, 2});
  EXPECT_FALSE(unknown.predicted_seconds || unknown.lower_bound_seconds);
}

TEST(RunWatch, WithoutRecordingThereIsNoFileAndNoThread) {
  Waiting observer;
  const ScratchFolder folder;
  RunWatch watch(observer);
  watch.open({.record = false, .output_dir = folder.path()});
  watch.describe(one_op());
  EXPECT_EQ(watch.recorder(), nullptr);
  EXPECT_FALSE(first_of_two_steps(watch).totals.has_value());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace spillway
