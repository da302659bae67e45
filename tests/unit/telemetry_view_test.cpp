// The live view: it fits whatever the size, and says what it should.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "telemetry/live_view.h"

namespace spillway {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr std::int64_t one_mib = std::int64_t{1} << 20;

ViewState busy() {
  ViewState state;
  state.run.total_steps = 300;
  state.run.budget_bytes = 600 * one_mib;
  state.run.spilled_bytes = 900 * one_mib;
  state.live.step = 121;
  state.live.total_steps = 300;
  state.live.phase = RunPhase::train;
  state.live.part = "backward layer 3 mlp micro-batch 1";
  state.live.share_of_step = 0.5;
  state.live.step_seconds = 2;
  state.live.memory_bytes = {100 * one_mib, 200 * one_mib, 30 * one_mib, 40 * one_mib, 5 * one_mib};
  state.live.rss_bytes = 580 * one_mib;
  state.live.read_bytes_per_second = 1.5e9;
  state.live.write_bytes_per_second = 0.7e9;
  state.live.largest_wait = "read_optimizer";
  state.live.largest_wait_seconds = 0.31;
  state.live.committed_step = 118;
  state.live.seconds_since_commit = 12;
  StepRecord& last = state.last.emplace();
  last.step = 120;
  last.total_steps = 300;
  last.loss = 3.25F;
  last.tokens_per_second = 2345;
  last.step_seconds = 4;
  last.lower_bound_seconds = 3.48;
  last.seconds_left = 725;
  for (int i = 0; i < 30; ++i) state.losses.push_back(4 - 0.02F * static_cast<float>(i));
  return state;
}

TEST(LiveView, SaysWhatAPersonWantsToKnow) {
  const std::vector<std::string> lines = view_of(busy(), {100, 40});
  EXPECT_THAT(lines, Contains(HasSubstr("40%  step 121/300  12 min 03 s left")));
  EXPECT_THAT(lines, Contains(HasSubstr("loss 3.2500")));
  EXPECT_THAT(lines, Contains(HasSubstr("2345 tokens/s, 87% of the bound")));
  EXPECT_THAT(lines, Contains(HasSubstr("580 MiB of 600 MiB: weights 100 MiB, optimizer 200 MiB")));
  EXPECT_THAT(lines, Contains(HasSubstr("reads 1500 MB/s, writes 700 MB/s")));
  EXPECT_THAT(lines, Contains(HasSubstr("backward layer 3 mlp")));
  EXPECT_THAT(lines, Contains(HasSubstr("most for read optimizer, 0.31 s")));
  EXPECT_THAT(lines, Contains(HasSubstr("last commit: step 118, 12 s ago")));
}

TEST(LiveView, HasLinesOfTheirOwnForADeviceAndItsLink) {
  ViewState state = busy();
  EXPECT_THAT(view_of(state, {100, 40}), testing::Not(Contains(HasSubstr("device"))));
  state.run.device_bytes = 300 * one_mib;
  state.live.device_memory_bytes = {0, 0, 0, 250 * one_mib, 50 * one_mib};
  state.live.up_bytes_per_second = 8e9;
  state.live.down_bytes_per_second = 2e9;
  const std::vector<std::string> lines = view_of(state, {100, 40});
  EXPECT_THAT(lines, Contains(HasSubstr("device 300 MiB: activations 250 MiB, unused 50 MiB")));
  EXPECT_THAT(lines, Contains(HasSubstr("link   up 8000 MB/s, down 2000 MB/s")));
}

TEST(LiveView, NamesWhatItWaitsFor) {
  ViewState state = busy();
  state.live.waits_for = "the read of model.norm.weight (4 KiB)";
  state.live.waited_seconds = 0.1;
  EXPECT_THAT(view_of(state, {100, 40}), Contains(HasSubstr("backward layer 3")));
  state.live.waited_seconds = 7.3;
  EXPECT_THAT(view_of(state, {100, 40}), Contains(HasSubstr("waits 7.3 s for the read of model.norm.weight")));
}

TEST(LiveView, FitsEverySize) {
  for (const bool color : {false, true}) {
    for (std::int64_t columns = 1; columns < 140; ++columns) {
      for (const std::int64_t rows : {1, 5, 9, 10, 50}) {
        ViewState state = busy();
        state.color = color;
        state.live.waits_for = "the read of something with a long name, and longer";
        state.live.waited_seconds = 3;
        const std::vector<std::string> lines = view_of(state, {columns, rows});
        EXPECT_LE(std::ssize(lines), std::max<std::int64_t>(1, rows - 1));
        for (const std::string& line : lines) EXPECT_LE(columns_of(line), columns) << line;
      }
    }
  }
}

TEST(LiveView, BeforeTheFirstStepHasEndedItSaysSo) {
  ViewState state;
  state.run.total_steps = 10;
  EXPECT_THAT(view_of(state, {80, 24}), Contains(HasSubstr("measuring")));
  EXPECT_THAT(view_of(state, {80, 24}), Contains(HasSubstr("no step has ended yet")));
}

TEST(LiveView, ASparklineRisesAndFallsWithTheLoss) {
  const std::vector<float> losses{1, 2, 3, 2, 1};
  EXPECT_EQ(sparkline(losses, 10), "▁▅█▅▁");
  EXPECT_EQ(sparkline(losses, 2), "█▁");
  EXPECT_EQ(sparkline({}, 5), "");
  EXPECT_EQ(columns_of(sparkline(losses, 10)), 5);
  const std::vector<float> odd{1, std::numeric_limits<float>::quiet_NaN(), 1};
  EXPECT_EQ(columns_of(sparkline(odd, 10)), 3);
}

TEST(LiveView, ColumnsAreCharactersWithoutControlSequences) {
  EXPECT_EQ(columns_of("abc"), 3);
  EXPECT_EQ(columns_of("\x1b[36m[=]\x1b[0m"), 3);
  EXPECT_EQ(columns_of("▁▂"), 2);
}

}  // namespace
}  // namespace spillway
