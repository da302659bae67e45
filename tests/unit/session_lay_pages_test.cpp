// Plans whose stays lie on pages next to each other: steps move few pages, and are not slower for it.
#include <gtest/gtest.h>

#include "executor/executor.h"
#include "llama_in_pieces.h"
#include "model/programs.h"
#include "one_choice.h"
#include "scratch_folder.h"
#include "session/lay_pages.h"
#include "session/session.h"
#include "session/setup.h"
#include "tiny_llama.h"

namespace spillway {
namespace {

class LayPages : public testing::Test {
 protected:
  LayPages() : options_(llama_in_pieces(folder_, R"({"disks": [{"read_bytes_per_second": 1e8}]})")) {
    options_.eval_data = options_.data;
    options_.page_size_bytes = 65536;
    options_.max_grad_norm = 0;
  }

  // In the middle between the smallest budget and the step's need.
  TrainOptions spilled(const std::string& flat_pages) const {
    TrainOptions options = options_;
    leave_one_choice_under_sanitizer(options);
    const PlanReport report = run_plan(options);
    options.memory_bytes = (report.min_memory_bytes + report.in_memory_bytes) / 2;
    options.flat_pages = flat_pages;
    return options;
  }

  // In three steps that follow others, the last two after an evaluation.
  std::int64_t page_moves(const TrainOptions& options) const {
    TrainingSetup setup(options);
    ExecutorOptions execution;
    execution.threads = 2;
    execution.spill_dirs = {folder_.path()};
    Executor executor(setup.planned.layout, setup.planned.programs, setup.planned.plans, setup.kernels, execution);
    const Plan& step = setup.planned.plans.front();
    const Plan& evaluation = setup.planned.plans[static_cast<std::size_t>(setup.evaluation_program())];
    EXPECT_GT(step.traffic.write_bytes, 0);
    executor.settle(step, step.entry);
    executor.run(step);
    const std::int64_t before = executor.page_moves();
    executor.run(step);
    executor.run(evaluation);
    executor.run(step);
    executor.run(step);
    executor.drain();
    return executor.page_moves() - before;
  }

  const ScratchFolder folder_;
  TrainOptions options_;
};

TEST_F(LayPages, StepsMoveFewPages) {
  const std::int64_t flat = page_moves(spilled("always"));
  const std::int64_t as_they_come = page_moves(spilled("never"));
  EXPECT_GT(as_they_come, 100);
  EXPECT_LT(2 * flat, as_they_come) << flat << " of " << as_they_come;
}

// Of one way to work through the step, at several budgets.
TEST_F(LayPages, AStepIsNotSlowerForIt) {
  TrainOptions options = options_;
  leave_one_way_to_work(options);
  options.deferred_layers = 0;
  const PlanReport report = run_plan(options);
  int laid = 0;
  for (int eighths = 1; eighths < 8; ++eighths) {
    options.memory_bytes = report.min_memory_bytes + (report.in_memory_bytes - report.min_memory_bytes) * eighths / 8;
    options.flat_pages = "auto";
    const TrainingSetup chosen(options);
    options.flat_pages = "never";
    const TrainingSetup never(options);
    EXPECT_FALSE(never.planned.plans.front().flat);
    EXPECT_LE(chosen.work.score.mean_seconds(), never.work.score.mean_seconds()) << eighths << " eighths";
    laid += chosen.planned.plans.front().flat ? 1 : 0;
  }
  EXPECT_GT(laid, 2);
}

// Choices are scored by the times that are given, which are not looked at again: those of the plan that was left.
TEST(LaidPages, TheTimesAreThoseOfThePlan) {
  const Model model(small_llama(), DType::f32, Purpose::training, {});
  const TrainingProgram step = record_training(model, {1, 64, 2});
  StepRates rates;
  rates.op_seconds.assign(step.program.ops.size(), 5e-5);
  rates.read_bytes_per_second = rates.write_bytes_per_second = rates.mixed_bytes_per_second = 1e9;
  KernelCache kernels;
  RunChoices choices;
  choices.lays_pages = true;
  const std::int64_t page_bytes = 16 * kib;
  const auto planned_in = [&](std::int64_t bytes) {
    choices.budget_bytes = bytes;
    return plan_programs({&step.program}, model.state(), choices, kernels, model.config().vocab_size, page_bytes);
  };
  const PlannedPrograms needs = planned_in(gib);
  int laid = 0;
  for (const bool always : {false, true}) {
    rates.attach_seconds = always ? 1e-5 : 0;  // that cost nothing are laid only where the step is faster for it
    for (int eighths = 1; eighths < 8; ++eighths) {
      PlannedPrograms planned =
          planned_in(needs.min_memory_bytes + (needs.in_memory_bytes - needs.min_memory_bytes) * eighths / 8);
      const PlanInTime in_time = [&](const Plan& plan, bool slow_disk) {
        StepRates at = rates;
        if (slow_disk) at.scale_disk(0.5);
        return simulate(plan, planned.layout, at);
      };
      const std::optional<PlanTimes> times = lay_first_flat(planned, {}, in_time, 2, always);
      ASSERT_TRUE(times);
      const Plan& plan = planned.plans.front();
      const Timeline again = in_time(plan, false);
      EXPECT_EQ(times->timeline.seconds, again.seconds);
      EXPECT_EQ(times->timeline.stalled_seconds, again.stalled_seconds);
      EXPECT_EQ(times->timeline.attach_seconds, again.attach_seconds);
      EXPECT_EQ(times->slow_disk_seconds, in_time(plan, true).seconds);
      laid += plan.flat ? 1 : 0;
    }
  }
  EXPECT_GE(laid, 7);
  EXPECT_LT(laid, 14);
}

}  // namespace
}  // namespace spillway
