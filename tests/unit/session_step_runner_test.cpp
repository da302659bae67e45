// Steps of a run that clips, in the ways that `auto` takes while clips come and go.
#include <gtest/gtest.h>

#include "llama_in_pieces.h"
#include "one_choice.h"
#include "scratch_folder.h"
#include "session/feed.h"
#include "session/model_files.h"
#include "session/session.h"
#include "session/setup.h"
#include "session/step_runner.h"
#include "session/training_data.h"

namespace spillway {
namespace {

class StepRunnerTest : public testing::Test {
 protected:
  // A disk and a processor of about the same speed, and a budget at which speculating is fastest while nothing clips.
  static TrainOptions options_in(const ScratchFolder& folder) {
    TrainOptions options = llama_in_pieces(folder, R"({"disks": [{"read_bytes_per_second": 3e7}],
                            "memory_bytes_per_second": 1e11, "f32_flops_per_second": 6e8})");
    options.page_size_bytes = 16384;
    leave_one_way_to_work(options);
    const PlanReport report = run_plan(options);
    for (int eighths = 1; eighths < 8; ++eighths) {
      options.memory_bytes = report.min_memory_bytes + (report.in_memory_bytes - report.min_memory_bytes) * eighths / 8;
      if (TrainingSetup(options).steps.has(UpdateWay::speculative)) break;
    }
    return options;
  }

  ExecutorOptions execution() const {
    ExecutorOptions options;
    options.threads = 2;
    options.spill_dirs = {folder_.path()};
    return options;
  }

  void limit_norms_to(float most) {
    for (std::size_t s = 0; s < setup_.steps.steps.size(); ++s)
      set_input(executor_, static_cast<std::int32_t>(s), setup_.steps.steps[s].max_norm, most);
  }

  StepRunner::Outcome run(StepRunner& runner) {
    products_.advance({});
    const StepRunner::Step step{++steps_, 0, 1e-4, adamw_scalars({}, products_, 1e-4), false};
    return runner.run(step);
  }

  std::int64_t written_by(std::int32_t plan) const {
    return setup_.planned.plans[static_cast<std::size_t>(plan)].traffic.write_bytes;
  }

  const ScratchFolder folder_;
  TrainingSetup setup_{options_in(folder_)};
  Executor executor_{setup_.planned.layout, setup_.planned.programs, setup_.planned.plans, setup_.kernels, execution()};
  AdamwProducts products_;
  std::int64_t steps_ = 0;
};

TEST_F(StepRunnerTest, AStepThatMakesAnUpdateOfTheOneBeforeCountsItsBytes) {
  ASSERT_GE(setup_.steps.index_of_step(UpdateWay::speculative), 0);
  ASSERT_TRUE(setup_.steps.flush);
  std::filesystem::create_directories(folder_ / "out");
  const TrainingData data(setup_, [] {});
  const Plan& first = setup_.planned.plans.front();
  executor_.settle(first, first.entry);
  load_weights(executor_, setup_.planned.layout, setup_.model, setup_.folder, setup_.files, [] {});
  StepRunner runner(setup_, executor_, data.windows(), [](bool) {});
  limit_norms_to(1e-3F);
  while (runner.next_way() != UpdateWay::deferred) EXPECT_TRUE(run(runner).clipped);
  limit_norms_to(1e9F);
  while (runner.next_way() == UpdateWay::deferred) EXPECT_FALSE(run(runner).clipped);
  ASSERT_TRUE(runner.pending());
  const StepRunner::Outcome both = run(runner);
  ASSERT_EQ(both.way, UpdateWay::speculative);
  const std::int32_t flush = setup_.planned.plan_of(setup_.steps.index_of_flush(), false);
  EXPECT_GT(written_by(flush), 0);
  EXPECT_EQ(both.report.traffic.write_bytes, written_by(flush) + written_by(both.plan));
  EXPECT_EQ(both.plans, (std::vector{flush, both.plan}));
  const StepRunner::Outcome alone = run(runner);
  EXPECT_EQ(alone.report.traffic.write_bytes, written_by(both.plan));
  EXPECT_EQ(alone.plans, std::vector{both.plan});
}

// Whatever is wrong with it, a run would meet it only when a step clips.
TEST_F(StepRunnerTest, APlanThatTheOthersCannotFollowIsRefused) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  ASSERT_TRUE(setup_.steps.redo);
  PlannedPrograms planned = setup_.planned;
  const std::int64_t pages = planned.plans.front().pages;
  const PlanLinks links{setup_.steps.boundaries()};
  add_plan(planned, 0, pages, setup_.choices, links, false);
  Boundary& exit = planned.plans[static_cast<std::size_t>(setup_.steps.index_of_redo())].exit;
  ASSERT_FALSE(exit.stays.empty());
  exit.stays.pop_back();
  exit.dirty.pop_back();
  EXPECT_DEATH(add_plan(planned, 0, pages, setup_.choices, links, false), "does not follow that of");
}

}  // namespace
}  // namespace spillway
