#include <gtest/gtest.h>

#include <limits>

#include "session/commit_pace.h"

namespace spillway {
namespace {

TEST(CommitPaceTest, CommitsAreAsFarApartAsItSays) {
  constexpr double step_seconds = 2;
  constexpr int steps = 3000;
  for (const std::int64_t save_steps : {0, 1, 7}) {
    for (const bool is_free : {false, true}) {
      CommitPace pace(save_steps, is_free);
      int commits = 0;
      for (int step = 1; step <= steps; ++step) {
        if (!pace.is_due(step, step * step_seconds, false)) continue;
        pace.begun(step * step_seconds);
        ++commits;
      }
      const double said = pace.seconds_between(step_seconds, 0.1);
      EXPECT_NEAR(steps * step_seconds / commits, said, 0.01 * said) << save_steps << (is_free ? ", free" : "");
    }
  }
  EXPECT_EQ(CommitPace(0, false).seconds_between(400, 0.1), 400);
  EXPECT_EQ(CommitPace(-1, true).seconds_between(30, 0.1), std::numeric_limits<double>::infinity());
}

TEST(CommitPaceTest, CommitsAreNoFasterThanTheDiskWritesThem) {
  for (const std::int64_t save_steps : {0, 1, 7}) {
    EXPECT_EQ(CommitPace(save_steps, false).seconds_between(2, 400), 400);
  }
}

TEST(CommitPaceTest, ABusyStepsCommitIsMadeAtTheNextStepThatCan) {
  CommitPace pace(10, false);
  for (int step = 1; step < 10; ++step) EXPECT_FALSE(pace.is_due(step, step, true)) << step;
  EXPECT_EQ(pace.postponed(), 0);
  for (int step = 10; step < 13; ++step) EXPECT_FALSE(pace.is_due(step, step, true)) << step;
  EXPECT_EQ(pace.postponed(), 1);
  EXPECT_TRUE(pace.is_due(13, 13, false));
  EXPECT_TRUE(pace.is_due(14, 14, false));  // none has begun yet
  pace.begun(14);
  for (int step = 15; step < 20; ++step) EXPECT_FALSE(pace.is_due(step, step, false)) << step;
  EXPECT_TRUE(pace.is_due(20, 20, false));
  EXPECT_EQ(pace.postponed(), 1);
}

TEST(CommitPaceTest, OneCommitMakesUpForAllThatAreOwed) {
  CommitPace pace(5, true);
  for (int step = 1; step <= 11; ++step) EXPECT_FALSE(pace.is_due(step, step, true)) << step;
  EXPECT_EQ(pace.postponed(), 2);
  EXPECT_TRUE(pace.is_due(12, 12, false));
  pace.begun(12);
  EXPECT_FALSE(pace.is_due(13, 13, false));
  EXPECT_TRUE(pace.is_due(15, 15, false));
}

TEST(CommitPaceTest, AStepThatIsPassedOverIsOwedButNotPostponed) {
  CommitPace pace(10, false);
  pace.pass_over(9);
  EXPECT_FALSE(pace.is_due(11, 11, false));
  pace.pass_over(20);
  pace.pass_over(21);
  EXPECT_TRUE(pace.is_due(22, 22, false));
  EXPECT_EQ(pace.postponed(), 0);
  CommitPace automatic(0, true);
  automatic.begun(1);
  automatic.pass_over(2);
  EXPECT_FALSE(automatic.is_due(3, 3, false, true));
}

// One of an export, say, or one that the user asked for.
TEST(CommitPaceTest, ACommitForAnotherReasonIsTheOneOwed) {
  CommitPace pace(10, false);
  EXPECT_FALSE(pace.is_due(10, 10, true));
  pace.begun(11);
  EXPECT_FALSE(pace.is_due(12, 12, false));
}

TEST(CommitPaceTest, LeftToItselfADearStepOwesNothing) {
  CommitPace pace(0, true);
  EXPECT_TRUE(pace.is_due(1, 1, false));
  pace.begun(1);
  EXPECT_FALSE(pace.is_due(2, 2, true));
  EXPECT_EQ(pace.postponed(), 1);
  EXPECT_FALSE(pace.is_due(3, 3, false, true));
  EXPECT_TRUE(pace.is_due(4, 4, false));
}

}  // namespace
}  // namespace spillway
