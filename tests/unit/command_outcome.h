// Runs a command line in this process, and what every refused one prints.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cli/command_line.h"

namespace spillway {

struct Outcome {
  int code = 0;
  std::string out;
  std::string err;
};

inline Outcome run(std::vector<std::string> arguments) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = run_command_line(std::move(arguments));
  std::string out = testing::internal::GetCapturedStdout();
  return {code, std::move(out), testing::internal::GetCapturedStderr()};
}

// One sentence with these words on stderr.
inline void expect_refused(std::vector<std::string> arguments, const std::string& words, int code = 2) {
  const Outcome outcome = run(std::move(arguments));
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_TRUE(outcome.err.starts_with("spillway: error: ")) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_THAT(outcome.err, testing::HasSubstr(words));
  if (code == 2) {
    EXPECT_EQ(outcome.out, "");
  }
}

}  // namespace spillway
