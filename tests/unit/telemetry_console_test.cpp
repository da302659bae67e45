// What a run prints, and how long it says it takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "telemetry/console.h"
#include "telemetry/time_left.h"

namespace spillway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The text that a run of `steps` steps prints.
std::string output_of(ConsoleStyle style, std::int64_t steps, std::int64_t logging_steps) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* stream = ::open_memstream(&text, &size);
  {
    Console console(stream, stream, style, logging_steps);
    console.note("dtype auto is f32 here");
    console.started({.model = "m", .dtype = "f32", .total_steps = steps, .tokens_per_step = 64, .threads = 1});
    for (std::int64_t step = 1; step <= steps; ++step)
      console.step({.step = step, .total_steps = steps, .loss = 2.5F, .seconds_left = 61.0});
    console.finished({.output_dir = "out", .steps = steps});
  }
  std::fclose(stream);
  std::string result(text, size);
  std::free(text);
  return result;
}

std::int64_t count(std::string_view text, std::string_view what) {
  std::int64_t found = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++found;
  return found;
}

TEST(Console, PlainOutputIsLinesWithoutControlSequences) {
  const std::string text = output_of({}, 10, 1);
  EXPECT_EQ(count(text, "\nstep "), 10);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, Not(HasSubstr("\r")));
  EXPECT_THAT(text, HasSubstr("loss 2.5000"));
  EXPECT_THAT(text, HasSubstr("1 min 01 s left"));
  EXPECT_THAT(text, HasSubstr("dtype auto is f32 here"));
  EXPECT_THAT(text, HasSubstr("wrote out"));
}

TEST(Console, OneIsNotSeveral) {
  EXPECT_THAT(output_of({}, 10, 1),
              AllOf(HasSubstr("10 steps of 64 tokens, 1 thread, at most"), HasSubstr("10 steps in ")));
  EXPECT_THAT(output_of({}, 1, 1), AllOf(HasSubstr("1 step of 64 tokens"), HasSubstr("1 step in ")));
}

TEST(Console, ALineSaysHowLongAStepWaitedAndWhatForMostly) {
  StepRecord r;
  r.step_seconds = 4;
  r.stall_seconds = 0.04;
  EXPECT_THAT(line_of(r), Not(HasSubstr("waited"))) << "1% of a step is not worth a word";
  r.stall_seconds = 0.51;
  EXPECT_THAT(line_of(r), HasSubstr("  waited 0.51 s"));
  EXPECT_THAT(line_of(r), Not(HasSubstr("of it for"))) << "without events nobody knows";
  StepTotals& totals = r.totals.emplace();
  totals.wait_seconds[static_cast<std::size_t>(WaitCause::read_optimizer)] = 0.31;
  totals.wait_seconds[static_cast<std::size_t>(WaitCause::write_weights)] = 0.2;
  EXPECT_THAT(line_of(r), HasSubstr("  waited 0.51 s, 0.31 s of it for read optimizer"));
  r.step_seconds = 0.1;
  r.stall_seconds = 0.0123;
  EXPECT_THAT(line_of(r), HasSubstr("  waited 12.3 ms, "));
}

TEST(Console, ALineSaysHowNearAStepIsToItsBound) {
  StepRecord r;
  r.step_seconds = 4;
  EXPECT_THAT(line_of(r), Not(HasSubstr("bound"))) << "the machine's rates are not known";
  r.lower_bound_seconds = 3;
  EXPECT_THAT(line_of(r), HasSubstr("  75% of the bound"));
  r.lower_bound_seconds = 5;
  EXPECT_THAT(line_of(r), HasSubstr("  faster than the bound")) << "the rates known when the run began were lower";
}

TEST(Console, ALineSaysWhichWayAStepClipped) {
  StepRecord r;
  r.grad_norm = 1.5;
  EXPECT_THAT(line_of(r), HasSubstr("  grad norm 1.500  lr ")) << "it does not clip";
  r.clip = "speculative";
  EXPECT_THAT(line_of(r), HasSubstr("  grad norm 1.500  clip speculative (under the limit)  lr "));
  r.clip = "reverted";
  r.clipped = true;
  EXPECT_THAT(line_of(r), HasSubstr("  grad norm 1.500  clip reverted  lr "));
}

TEST(Console, LoggingStepsThinOutTheLines) {
  const std::string text = output_of({}, 10, 4);
  EXPECT_EQ(count(text, "\nstep "), 4);  // 1, 4, 8, 10
}

TEST(Console, ALiveViewIsReplacedInOneWriteAndGoneAtTheEnd) {
  const std::string text = output_of({.live = true}, 10, 5);
  EXPECT_EQ(count(text, "\x1b[?7l"), 9);  // drawn after every step but the last
  EXPECT_EQ(count(text, "\x1b[?7h"), 9);
  EXPECT_EQ(count(text, "  grad norm "), 3);  // lines stay: of steps 1, 5 and 10
  EXPECT_THAT(text, Not(HasSubstr("\x1b[36m")));
  EXPECT_THAT(output_of({.live = true, .color = true}, 3, 1), HasSubstr("\x1b[36m"));
  EXPECT_EQ(text.rfind("\x1b[J") > text.rfind("\x1b[?7h"), true) << "cleared before the last words";
}

TEST(Console, QuietPrintsNothing) { EXPECT_EQ(output_of({.live = true, .quiet = true}, 10, 1), ""); }

TEST(Console, AFileIsNoTerminal) {
  std::FILE* stream = std::tmpfile();
  const ConsoleStyle style = ConsoleStyle::of(stream);
  EXPECT_FALSE(style.live);
  EXPECT_FALSE(style.color);
  std::fclose(stream);
}

TEST(Console, SecondsAsPeopleSayThem) {
  EXPECT_EQ(format_seconds(0.4), "0 s");
  EXPECT_EQ(format_seconds(59.4), "59 s");
  EXPECT_EQ(format_seconds(59.6), "1 min 00 s");
  EXPECT_EQ(format_seconds(12000), "3 h 20 min");
  EXPECT_EQ(format_seconds(200000), "2 d 7 h");
  EXPECT_EQ(format_seconds(-1), "unknown");
}

TEST(TimeLeft, IsTheMedianOnceBelievable) {
  TimeLeft left;
  left.after_step(100);  // the first warms up
  left.after_step(1);
  left.after_step(1);
  EXPECT_FALSE(left.seconds(7, 0).has_value());
  left.after_step(50);
  EXPECT_EQ(left.seconds(6, 0), 6.0);
  EXPECT_EQ(left.seconds(0, 0), 0.0);
}

TEST(TimeLeft, CountsEvaluations) {
  TimeLeft left;
  for (int i = 0; i < 5; ++i) left.after_step(2);
  left.expect_evaluation(1.5);
  EXPECT_EQ(left.seconds(3, 2), 12.0);
  left.after_evaluation(10);
  EXPECT_EQ(left.seconds(3, 2), 26.0);
}

TEST(TimeLeft, FollowsAChangeOfPace) {
  TimeLeft left;
  for (int i = 0; i < 200; ++i) left.after_step(1);
  for (std::size_t i = 0; i < TimeLeft::window_steps; ++i) left.after_step(2);
  EXPECT_EQ(left.seconds(10, 0), 20.0);
}

}  // namespace
}  // namespace spillway
