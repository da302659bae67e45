// The command as a whole: exit codes, and one sentence on stderr for every mistake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <system_error>

#include "cli/command_line.h"
#include "command_outcome.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;

TEST(CommandLine, HelpAndVersionSucceed) {
  EXPECT_THAT(run({"--help"}).out, HasSubstr("train"));
  EXPECT_THAT(run({"--version"}).out, HasSubstr("spillway 0."));
  const Outcome help = run({"train", "--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, HasSubstr("--learning-rate"));
  EXPECT_THAT(help.out, ::testing::Not(HasSubstr("--poison")));
}

TEST(CommandLine, WrongArgumentsAreOneSentence) {
  expect_refused({}, "verb");
  expect_refused({"trian"}, "did you mean train?");
  expect_refused({"train", "--lerning-rate", "1"}, "did you mean --learning-rate?");
  expect_refused({"train", "--learning_rate", "1"}, "did you mean --learning-rate?");
  expect_refused({"train", "--learning-rate", "fast"}, "fast");
  expect_refused({"train", "--learning-rate"}, "--learning-rate");
  expect_refused({"train", "a.yaml", "b.yaml"}, "b.yaml");
  expect_refused({"train"}, "--model");
  expect_refused({"train", "no/such.yaml"}, "no/such.yaml");
  expect_refused({"plan", "--model", "m"}, "--data");
  expect_refused({"init", "--preset", "demo", "out"}, "--tokenizer");
  expect_refused({"tokenize", "--model", "bytes", "--text", "a", "--file", "b"}, "exclude");
  expect_refused({"eval", "--model", "m", "--data"}, "--data");
}

// As of a variable that is not set.
TEST(CommandLine, AnEmptyValueIsRefusedAndNeverTakesTheNextArgument) {
  expect_refused({"train", "--model", "m", "--data", "d", "--output-dir", "o", "--trace="}, "--trace is empty");
  expect_refused({"train", "--trace=", "--threads", "2", "--model", "m"}, "--trace is empty");
  expect_refused({"train", "--metrics-address", "", "--model", "m"}, "--metrics-address is empty");
  expect_refused({"train", "--data=", "--model", "m"}, "--data has an empty item");
  expect_refused({"train", "--dtype=", "--model", "m"}, "give one of auto, f32, bf16");
  const Outcome outcome = run({"tokenize", "--text=", "--model", "bytes"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, run({"tokenize", "--text", "", "--model", "bytes"}).out);
}

TEST(CommandLine, AThreadThatTheSystemRefusesIsNoInternalError) {
  const auto told = [](std::errc cause) {
    testing::internal::CaptureStderr();
    int code = 0;
    try {
      throw std::system_error(std::make_error_code(cause));
    } catch (...) {
      code = tell_failure();
    }
    return std::make_pair(code, testing::internal::GetCapturedStderr());
  };
  const auto [code, sentence] = told(std::errc::resource_unavailable_try_again);
  EXPECT_EQ(code, 4);
  EXPECT_THAT(sentence, HasSubstr("give fewer --threads"));
  EXPECT_EQ(told(std::errc::io_error).first, 1);
}

TEST(CommandLine, FlagsAreShownInTheEffectiveConfig) {
  const Outcome outcome = run({"train", "--max-steps", "-1", "--shuffle", "false", "--memory", "1.5GiB", "--data", "a",
                               "b", "--seed", "1", "--seed", "2", "--print-config"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\nshuffle: false\n"));
  EXPECT_THAT(outcome.out, HasSubstr("\nmemory: 1536MiB\n"));
  EXPECT_THAT(outcome.out, HasSubstr("\ndata: [\"a\", \"b\"]\n"));
  EXPECT_THAT(outcome.out, HasSubstr("\nseed: 2\n"));
  EXPECT_THAT(run({"plan", "--no-shuffle", "--print-config"}).out, HasSubstr("\nshuffle: false\n"));
}

}  // namespace
}  // namespace spillway
