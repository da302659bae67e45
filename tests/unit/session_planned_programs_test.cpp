// In which pages a budget's Programs lie.
#include <gtest/gtest.h>

#include <set>

#include "base/bytes.h"
#include "device/page_pool.h"
#include "model/programs.h"
#include "session/planned_programs.h"
#include "tiny_llama.h"

namespace spillway {
namespace {

// A step of a model of this width, whose largest working set is a few MiB.
class PagesOfPrograms : public testing::Test {
 protected:
  explicit PagesOfPrograms(std::int64_t width = 384)
      : model_(llama_of(width), DType::f32, Purpose::training, {}), step_(record_training(model_, {1, 64, 1})) {}

  static ModelConfig llama_of(std::int64_t width) {
    ModelConfig config = tiny_llama();
    config.hidden_size = width;
    config.intermediate_size = 3 * width;
    config.head_dim = width / 2;
    return config;
  }

  PlannedPrograms with(std::int64_t budget_bytes, std::int64_t page_bytes = 0) {
    RunChoices choices;
    choices.budget_bytes = budget_bytes;
    return plan_programs({&step_.program}, model_.state(), choices, kernels_, model_.config().vocab_size, page_bytes);
  }

  Model model_;
  TrainingProgram step_;
  KernelCache kernels_;
};

TEST_F(PagesOfPrograms, AreHugeFromTheSmallestBudgetForThemOn) {
  const PlannedPrograms wide = with(gib);
  EXPECT_EQ(wide.layout.page_bytes, huge_page_bytes);
  const std::int64_t smallest_of_huge = with(gib, huge_page_bytes).min_memory_bytes;
  ASSERT_LT(wide.min_memory_bytes, smallest_of_huge) << "smaller pages waste less";
  EXPECT_EQ(with(smallest_of_huge).layout.page_bytes, huge_page_bytes);
  for (const std::int64_t budget : {smallest_of_huge - mib, wide.min_memory_bytes}) {
    const PlannedPrograms tight = with(budget);
    EXPECT_TRUE(tight.fits()) << budget;
    EXPECT_LT(tight.layout.page_bytes, huge_page_bytes) << budget;
  }
  EXPECT_FALSE(with(wide.min_memory_bytes - mib).fits());
}

TEST_F(PagesOfPrograms, WhatABudgetIsToldItNeedsDoesNotDependOnIt) {
  const PlannedPrograms wide = with(gib);
  for (const std::int64_t budget : {std::int64_t{1}, wide.min_memory_bytes, wide.in_memory_bytes}) {
    const PlannedPrograms planned = with(budget);
    EXPECT_EQ(planned.min_memory_bytes, wide.min_memory_bytes) << budget;
    EXPECT_EQ(planned.in_memory_bytes, wide.in_memory_bytes) << budget;
  }
  const auto moved = [&](std::int64_t budget) {
    const Traffic traffic = with(budget).plans.front().traffic;
    return traffic.read_bytes + traffic.write_bytes;
  };
  EXPECT_EQ(moved(wide.in_memory_bytes), 0);
  EXPECT_GT(moved(wide.in_memory_bytes - mib), 0);
}

// What does not stay in memory for huge pages is at most twice what does not in small ones.
TEST_F(PagesOfPrograms, AreNotHugeWhereMuchMoreWouldMove) {
  const std::int64_t small_hold_all = with(gib).in_memory_bytes;
  const std::int64_t huge_hold_all = with(gib, huge_page_bytes).in_memory_bytes;
  ASSERT_LT(small_hold_all, huge_hold_all);
  const std::int64_t twice = 2 * small_hold_all - huge_hold_all;
  EXPECT_EQ(with(twice - 2 * huge_page_bytes).layout.page_bytes, huge_page_bytes);
  EXPECT_LT(with(twice + 2 * huge_page_bytes).layout.page_bytes, huge_page_bytes);
  EXPECT_LT(with(small_hold_all).layout.page_bytes, huge_page_bytes);
  EXPECT_LT(with(huge_hold_all - mib).layout.page_bytes, huge_page_bytes);
  EXPECT_EQ(with(huge_hold_all).layout.page_bytes, huge_page_bytes);
}

TEST_F(PagesOfPrograms, AreNotHugeWhereNoneAreAskedForOrADeviceHasTheirs) {
  RunChoices choices;
  choices.budget_bytes = gib;
  const auto page_bytes = [&] {
    return plan_programs({&step_.program}, model_.state(), choices, kernels_, model_.config().vocab_size, 0)
        .layout.page_bytes;
  };
  EXPECT_EQ(page_bytes(), huge_page_bytes);
  choices.device_bytes = gib;
  EXPECT_LT(page_bytes(), huge_page_bytes);
  choices.device_bytes = 0;
  choices.huge_pages = false;
  EXPECT_LT(page_bytes(), huge_page_bytes);
}

// What differs in what gives way and what is kept is planned anew in the same pages, as if from the start.
TEST_F(PagesOfPrograms, PlannedAgainAreAsPlannedFirst) {
  const EvaluationProgram evaluation = record_evaluation(model_, {1, 64, 1});
  RunChoices choices;
  choices.commits = Commits::some;
  choices.lays_pages = true;
  const PlanLinks links{{0, 0}, -1, {}, {true, false}};
  const auto planned_first = [&] {
    return plan_programs({&step_.program, &evaluation.program}, model_.state(), choices, kernels_,
                         model_.config().vocab_size, 65536, links);
  };
  const auto plans_of = [](const PlannedPrograms& planned) {
    std::string all;
    for (const Plan& plan : planned.plans) {
      all += dump(plan, planned.layout, *planned.programs[static_cast<std::size_t>(plan.program)]);
    }
    return all + dump(planned.first_unplaced, planned.layout, *planned.programs.front());
  };
  choices.budget_bytes = gib;
  const PlannedPrograms wide = planned_first();
  choices.budget_bytes = (wide.min_memory_bytes + wide.in_memory_bytes) / 2;
  PlannedPrograms planned = planned_first();
  std::set<std::string> different{plans_of(planned)};
  add_plan(planned, 0, planned.plans.front().pages, choices, links, true);  // one that commits goes with the others
  for (const Policy policy : {Policy::lru, Policy::everything_on_disk, Policy::automatic}) {
    choices.policy = policy;
    if (policy == Policy::automatic) choices.pinned.assign({PieceId{0}, PieceId{1}, PieceId{2}, PieceId{3}});
    plan_again(planned, choices, links);
    EXPECT_EQ(plans_of(planned), plans_of(planned_first())) << name_of(policy);
    EXPECT_EQ(planned.committing, (std::vector{-1, -1}));
    different.insert(plans_of(planned));
  }
  EXPECT_EQ(different.size(), 4U);
  choices.budget_bytes = wide.min_memory_bytes - mib;
  PlannedPrograms too_small = planned_first();
  plan_again(too_small, choices, links);
  EXPECT_FALSE(too_small.fits());
}

class PagesOfNarrowPrograms : public PagesOfPrograms {
 protected:
  PagesOfNarrowPrograms() : PagesOfPrograms(64) {}
};

TEST_F(PagesOfNarrowPrograms, AreNotHugeWhereThatWouldBeAThirdMore) {
  const PlannedPrograms chosen = with(gib);
  const PlannedPrograms huge = with(gib, huge_page_bytes);
  EXPECT_LT(chosen.layout.page_bytes, huge_page_bytes);
  ASSERT_EQ(huge.layout.page_bytes, huge_page_bytes);
  const auto in_pages = [](const PlannedPrograms& planned) {
    return planned.in_memory_bytes - planned.machine.fixed_bytes;
  };
  EXPECT_GT(3 * in_pages(huge), 4 * in_pages(chosen));
}

}  // namespace
}  // namespace spillway
