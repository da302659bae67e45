// The path of `--device cuda` with the processor in the place of the device (host_accelerator.h): ops that run behind
// the lanes, over all budgets, ways of clipping and splits; and a device that fails in the middle of a run.
#include "executor/accelerator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "accelerator/host_accelerator.h"
#include "base/error.h"
#include "device/memory_info.h"
#include "probe/probe.h"
#include "probe/rate_cache.h"
#include "same_bits.h"
#include "scoped_variable.h"
#include "session/run_control.h"
#include "session/setup.h"
#include "stop_after.h"
#include "under_sanitizer.h"

namespace spillway {
namespace {

constexpr std::int64_t roomy_device = std::int64_t{1} << 30;

class OnAnAccelerator : public SameBits, public testing::Test {
 protected:
  void SetUp() override {
    use(ragged_llama(3));
    options_.dtype = "bf16";
    options_.gradient_accumulation_steps = 2;
    options_.page_size_bytes = 0;  // the device's
    options_.eval_data.clear();
    options_.eval_steps = 0;
    options_.save_steps = -1;
  }
  void TearDown() override { set_host_accelerator_faults({}); }

  TrainOptions with_device(double share) const {
    TrainOptions options = options_;
    options.device = "cuda";
    options.device_memory_bytes = roomy_device;
    options.memory_bytes = 4 * least_update_bytes;  // the less, the sooner the host's updates are timed
    if (under_sanitizer && options.policy == "auto") options.policy = "farthest";  // not chosen among hundreds of plans
    const PlanReport roomy = run_plan(options);
    EXPECT_TRUE(roomy.fits) << roomy.advice;
    const auto spare = static_cast<double>(roomy.peak_device_memory_bytes - roomy.min_device_memory_bytes);
    options.device_memory_bytes = roomy.min_device_memory_bytes + static_cast<std::int64_t>(share * spare);
    return options;
  }

  void expect_same_over_budgets(const Outcome& expected, const std::string& what) {
    for (const double share : cases(std::vector{0.0, 0.4, 1.0})) {
      TrainOptions options = with_device(share);
      const PlanReport report = run_plan(options);
      ASSERT_TRUE(report.fits) << report.advice;
      EXPECT_EQ(report.link_up_bytes_per_step > 0, share < 1) << report.peak_device_memory_bytes;
      for (const std::int64_t budget : {report.in_memory_bytes, report.min_memory_bytes}) {
        options.memory_bytes = budget;
        options.delay_seed = 1 + budget / 4096 % 1000;
        set_host_accelerator_faults({.delay_seed = static_cast<std::uint64_t>(options.delay_seed)});
        expect_same(
            options, expected,
            what + ", device " + std::to_string(options.device_memory_bytes) + ", memory " + std::to_string(budget));
        const HostAcceleratorUse use = host_accelerator_use();
        EXPECT_GT(use.ops, 0) << "the processor's kernels ran";
        EXPECT_GT(use.most_ahead, 1) << "no op was started before the one before it was done";
      }
    }
  }
};

TEST_F(OnAnAccelerator, TheSameBitsHoweverAClipIsDone) {
  options_.max_grad_norm = 0.5;
  const Outcome expected = run(options_);
  for (const std::string mode : {"after", "deferred"}) {
    options_.clip_mode = mode;
    expect_same_over_budgets(expected, mode);
  }
}

TEST_F(OnAnAccelerator, TheSameBitsWithoutClippingAndWithEvaluation) {
  options_.deferred_layers = 0;
  options_.eval_data = options_.data;
  options_.eval_steps = 2;
  expect_same_over_budgets(run(options_), "no clipping");
}

TEST_F(OnAnAccelerator, TheSameBitsWhereverUpdatesRun) {
  options_.max_grad_norm = 0.5;
  const Outcome expected = run(options_);
  for (const std::string update_on : cases(std::vector{"2", "auto", "cpu", "device"})) {
    TrainOptions options = with_device(0.2);
    options.update_on = update_on;
    options.memory_bytes = run_plan(options).min_memory_bytes;
    set_host_accelerator_faults({.delay_seed = 3});
    expect_same(options, expected, "update_on " + update_on);
  }
}

// Reads and writes of the device's own, which end early at times; one fails, and is tried once more.
TEST_F(OnAnAccelerator, TheSameBitsWhereItReachesTheDiskItself) {
  options_.max_seq_len = 200;  // more activations than the host has room for
  options_.order = "layer";
  options_.recompute = "none";
  options_.policy = "farthest";
  std::int64_t written_bytes = 0;
  for (const bool clips : {true, false}) {
    options_.max_grad_norm = clips ? 0.5 : 0;
    options_.save_steps = clips ? 1 : -1;
    options_.deferred_layers = clips ? -1 : 0;
    const Outcome expected = run(options_);
    for (const double share : cases(std::vector{0.0, 0.2})) {
      set_host_accelerator_faults({.reaches_disk = true});
      TrainOptions options = with_device(share);
      options.memory_bytes = run_plan(options).min_memory_bytes;
      options.delay_seed = 23;
      EXPECT_FALSE(run_plan(options).device_direct) << "nobody asked for it";
      options.device_direct = "true";
      const PlanReport report = run_plan(options);
      EXPECT_TRUE(report.device_direct);
      EXPECT_GT(report.direct_read_bytes_per_step, 0);
      set_host_accelerator_faults(
          {.delay_seed = 9, .reaches_disk = true, .reads_until_failure = 5, .failing_reads = 1});
      expect_same(options, expected, "directly, device " + std::to_string(options.device_memory_bytes));
      EXPECT_GT(host_accelerator_use().reads, 5);
      written_bytes += host_accelerator_use().written_bytes;
      options.device_direct = "false";
      EXPECT_FALSE(run_plan(options).device_direct);
      expect_same(options, expected, "by way of the host");
      EXPECT_EQ(host_accelerator_use().reads + host_accelerator_use().written_bytes, 0);
      set_host_accelerator_faults({});
    }
  }
  EXPECT_GT(written_bytes, 0);
}

TEST_F(OnAnAccelerator, WithoutAPathToTheDiskARunSaysSo) {
  TrainOptions options = with_device(0);
  options.device_direct = "auto";
  const PlanReport report = run_plan(options);
  EXPECT_FALSE(report.device_direct);
  const std::string sentence = "there is no direct path from the device to the disk: nobody asked for one";
  EXPECT_TRUE(std::any_of(report.notes.begin(), report.notes.end(),
                          [&](const std::string& note) { return note.find(sentence) == 0; }));
  options.device_direct = "false";
  for (const std::string& note : run_plan(options).notes) EXPECT_EQ(note.find(sentence), std::string::npos);
  options.device_direct = "true";
  EXPECT_THROW(run_plan(options), UserError);
}

class Replayed : public OnAnAccelerator {
 protected:
  void SetUp() override {
    OnAnAccelerator::SetUp();
    options_.max_grad_norm = 0.5;
    options_.max_steps = 5;
    options_.poison = false;
    options_.eval_data = options_.data;  // another plan in between
    options_.eval_steps = 2;
  }
};

TEST_F(Replayed, StepsThatMoveNothingHaveTheSameBits) {
  options_.clip_mode = "after";  // all of a step within it
  const Outcome expected = run(options_);
  TrainOptions options = with_device(1);
  set_host_accelerator_faults({.delay_seed = 5});
  expect_same(options, expected, "replayed");
  const std::int64_t replayed = host_accelerator_use().replayed;
  options.device_replay = false;
  expect_same(options, expected, "not replayed");
  EXPECT_EQ(host_accelerator_use().replayed, 0);
  options = with_device(0.3);
  EXPECT_GT(run_plan(options).link_up_bytes_per_step, 0);
  expect_same(options, expected, "moves");  // evaluation does not
  EXPECT_GE(replayed - host_accelerator_use().replayed, 3 * 3) << "forward, backward and update of three steps";
}

TEST_F(Replayed, MoreSequencesThanMarksAndPackedMoments) {
  options_.order = "micro-batch";
  options_.gradient_accumulation_steps = 24;
  options_.max_steps = 4;
  options_.per_device_train_batch_size = 1;
  options_.max_seq_len = 16;
  options_.moments = "8bit";
  const Outcome expected = run(options_);
  set_host_accelerator_faults({.delay_seed = 6});
  expect_same(with_device(1), expected, "replayed");
  EXPECT_GT(host_accelerator_use().replayed, 2 * Accelerator::most_marks);
}

TEST_F(Replayed, WhatCannotBeRecordedIsStartedOneByOne) {
  const Outcome expected = run(options_);
  set_host_accelerator_faults({.refuses_to_record = true});
  expect_same(with_device(1), expected, "refused");
  EXPECT_EQ(host_accelerator_use().replayed, 0);
}

// Outputs are fetched when all has ended: a loss that is fetched in the midst has its phase wait for all others.
// In some of the steps that are replayed: in one the thread that looks may come late, and find phases done at once.
TEST_F(Replayed, PhasesAreToldApart) {
  options_.max_steps = 8;
  set_host_accelerator_faults({.delay_seed = 7});
  const std::vector<StepRecord> steps = run(with_device(1)).steps;
  EXPECT_GT(host_accelerator_use().replayed, 0);
  for (const StepPhase phase : {StepPhase::forward, StepPhase::head, StepPhase::backward, StepPhase::update}) {
    double share = 0;
    for (std::size_t s = 3; s < steps.size(); ++s) {  // before that they are started one by one, and recorded
      share = std::max(share,
                       steps[s].totals.value().phase_seconds[static_cast<std::size_t>(phase)] / steps[s].step_seconds);
    }
    EXPECT_GT(share, 0.01) << name_of(phase);
  }
}

// While a sequence is recorded, and while it is replayed.
TEST_F(Replayed, AFailureIsOneSentence) {
  TrainOptions options = with_device(1);
  options.output_dir = (scratch_ / "whole").string();
  run(options);
  const std::int64_t ops = host_accelerator_use().ops;
  for (const std::int64_t tenths : {3, 9}) {
    options.output_dir = (scratch_ / ("broken" + std::to_string(tenths))).string();
    set_host_accelerator_faults({.ops_until_failure = ops * tenths / 10});
    RecordingObserver observer;
    EXPECT_THROW(run_train(options, observer), DeviceError);
    EXPECT_LT(observer.steps.size(), 5U);
  }
}

// What was committed before is complete, and the run goes on from it, on the device or without.
TEST_F(OnAnAccelerator, AFailureInTheMiddleOfARunIsOneSentenceAndLeavesTheLastCommit) {
  options_.max_steps = 4;
  options_.save_steps = 1;
  options_.lr_scheduler_type = "constant";
  const Outcome expected = run(options_);
  TrainOptions options = with_device(0.3);
  options.output_dir = (scratch_ / "whole").string();
  run(options);
  const std::int64_t ops = host_accelerator_use().ops;
  for (const auto& [eighths, without] : cases(std::vector<std::pair<int, bool>>{{7, false}, {5, true}, {3, false}})) {
    SCOPED_TRACE(eighths);
    options.output_dir = (scratch_ / ("broken" + std::to_string(eighths))).string();
    set_host_accelerator_faults({.ops_until_failure = ops * eighths / 8});
    RecordingObserver observer;
    try {
      run_train(options, observer);
      FAIL() << "it ran";
    } catch (const DeviceError& error) {
      EXPECT_NE(std::string(error.what()).find("the device failed"), std::string::npos) << error.what();
    }
    EXPECT_LT(observer.steps.size(), 4U);
    set_host_accelerator_faults({});
    TrainOptions then = without ? options_ : options;
    then.output_dir = options.output_dir;
    then.allow_numeric_change = without;
    EXPECT_EQ(run(then).weights, expected.weights);
  }
}

// The same of a read by its own path, which fails twice.
TEST_F(OnAnAccelerator, AReadThatFailsIsOneSentenceAndLeavesTheLastCommit) {
  options_.max_steps = 4;
  options_.save_steps = 1;
  options_.lr_scheduler_type = "constant";
  const Outcome expected = run(options_);
  set_host_accelerator_faults({.reaches_disk = true});
  TrainOptions options = with_device(0);
  options.device_direct = "true";
  options.machine = scratch_.file("assumed.json", "{}").string();  // what is chosen reads, on each machine
  options.memory_bytes = run_plan(options).min_memory_bytes;
  options.output_dir = (scratch_ / "whole").string();
  run(options);
  const std::int64_t reads = host_accelerator_use().reads;
  ASSERT_GT(reads, 8);
  options.output_dir = (scratch_ / "broken").string();
  set_host_accelerator_faults({.reaches_disk = true, .reads_until_failure = reads * 5 / 8, .failing_reads = reads});
  RecordingObserver observer;
  try {
    run_train(options, observer);
    FAIL() << "it ran";
  } catch (const DeviceError& error) {
    EXPECT_EQ(std::string(error.what()).find("reading the slot file '"), 0U) << error.what();
  }
  EXPECT_GT(observer.steps.size(), 0U);
  EXPECT_LT(observer.steps.size(), 4U);
  set_host_accelerator_faults({.reaches_disk = true});
  EXPECT_EQ(run(options).weights, expected.weights);
}

TEST_F(OnAnAccelerator, ResumesWithAndWithoutADevice) {
  options_.max_steps = 4;
  options_.save_steps = 1;
  options_.lr_scheduler_type = "constant";
  const Outcome expected = run(options_);
  for (const bool begins_on_it : {true, false}) {
    TrainOptions first = begins_on_it ? with_device(0) : options_;
    TrainOptions then = begins_on_it ? options_ : with_device(0);
    then.allow_numeric_change = true;
    first.output_dir = then.output_dir = (scratch_ / (begins_on_it ? "began" : "ended")).string();
    RunControl control;
    StopAfter observer(control, 2);
    run_train(first, observer, &control);
    EXPECT_EQ(run(then).weights, expected.weights);
  }
}

TEST_F(OnAnAccelerator, MoreMemoryThanIsFreeIsRefused) {
  TrainOptions options = options_;
  options.device = "cuda";
  options.device_memory_bytes = std::int64_t{1} << 40;
  EXPECT_THROW(run_plan(options), DoesNotFit);
}

// What its memory carries, by what an update reads and writes there.
TEST_F(OnAnAccelerator, UpdatesAsFastAsItsMemoryCarriesTheMoments) {
  TrainOptions options = options_;
  options.device = "cuda";
  const auto rate = [&](const std::string& moments) {
    options.moments = moments;
    return TrainingSetup(options).choices.update.device_parameters_per_second;
  };
  constexpr double memory_bytes_per_second = 2e10;  // of the device in these tests
  EXPECT_NEAR(rate("f32"), memory_bytes_per_second / 26, 1);
  EXPECT_NEAR(rate("8bit"), memory_bytes_per_second / 14, 1);
}

// An accelerator's memory is none of the process's, so what is resident is what a step says. (That of the stand-in is.)
TEST_F(OnAnAccelerator, StepsSayWhatIsResident) {
  class Observer final : public RecordingObserver {
   public:
    void step(const StepRecord& record) override { difference = std::abs(record.rss_bytes - rss_bytes()); }
    void live(const LiveStatus& status) override {
      live_difference = std::min(live_difference, std::abs(status.rss_bytes - rss_bytes()));
    }
    std::int64_t difference = 0;
    std::int64_t live_difference = std::int64_t{1} << 40;
  } observer;
  TrainOptions options = options_;
  options.device = "cuda";
  options.max_steps = 8;
  options.output_dir = (scratch_ / "out").string();
  options.device_memory_bytes = run_plan(options).peak_device_memory_bytes;
  run_train(options, observer);
  EXPECT_LT(observer.difference, options.device_memory_bytes / 2);
  EXPECT_LT(observer.live_difference, options.device_memory_bytes / 2);
}

// Ops take what the device says of them, whatever its rates of products and memory would have.
TEST_F(OnAnAccelerator, IsPredictedByItsOwnOps) {
  TrainOptions options = options_;
  options.device = "cuda";
  constexpr double seconds = 1e-3;
  set_host_accelerator_faults({.op_seconds = seconds});
  const TrainingSetup setup(options);
  const PlanReport report = run_plan(options, true);
  const Program& step = *setup.planned.programs.front();
  const auto others = std::ssize(step.ops) - update_sides(setup.planned.plans.front(), step).other_ops;
  ASSERT_EQ(report.link_up_bytes_per_step, 0);
  const double of_updates = static_cast<double>(setup.model.parameter_count()) /
                            setup.choices.update.device_parameters_per_second;  // by what is updated, not by op
  EXPECT_NEAR(report.prediction.value().step_seconds, static_cast<double>(others) * seconds + of_updates, 1e-6);
}

// As it was measured before, or as it is timed now; never by the bandwidth that is assumed of a machine.
TEST_F(OnAnAccelerator, TheHostUpdatesAsFastAsItsKernelDoes) {
  const ScopedVariable cache("XDG_CACHE_HOME", (scratch_ / "cache").string());
  TrainOptions options = options_;
  options.device = "cuda";
  const auto rate = [&] { return TrainingSetup(options).choices.update.host_parameters_per_second; };
  const double timed = rate();
  EXPECT_GT(timed, 0);
  EXPECT_NE(timed, assumed_rates().memory_bandwidth() / 26);
  MachineRates known = assumed_rates();
  known.identity = identify_machine();
  known.threads = options.threads;
  known.ops.push_back({{"adamw", DType::bf16, "bf16[1024,1024] f32[1024,1024] ->", 0, 26e6}, options.threads, 0.5});
  share_rates(cache_directory(), known, false);
  EXPECT_DOUBLE_EQ(rate(), 26e6 / 0.5 / 26);
}

// Twice what is free is no reason to say nothing of the plan that fits.
TEST_F(OnAnAccelerator, PlansWithTheDevicesOwnMemory) {
  TrainOptions options = options_;
  options.device = "cuda";
  options.update_on = "cpu";
  const PlanReport report = run_plan(options, true);
  ASSERT_TRUE(report.fits) << report.advice;
  EXPECT_GT(report.link_up_bytes_per_step, 0);
  std::set<std::string> levers;
  for (const Lever& lever : report.prediction.value().levers) levers.insert(lever.what);
  EXPECT_TRUE(levers.contains("twice the link"));
  EXPECT_TRUE(levers.contains("twice the batch"));
  EXPECT_FALSE(levers.contains("twice the device memory"));
}

}  // namespace
}  // namespace spillway
