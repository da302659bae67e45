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

}  // namespace
}  // namespace spillway
