// What a run takes from its options and its environment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/bytes.h"
#include "scoped_variable.h"
#include "session/run_choices.h"

namespace spillway {
namespace {

TEST(RunChoices, VariablesThatChangeNumbersAreUnset) {
  const ScopedVariable products("ONEDNN_DEFAULT_FPMATH_MODE", "BF16");
  const ScopedVariable emulation("CUBLAS_EMULATE_SINGLE_PRECISION", "1");
  const ScopedVariable strategy("CUBLAS_EMULATION_STRATEGY", "eager");
  const ScopedVariable tf32("NVIDIA_TF32_OVERRIDE", "1");
  const ScopedVariable device("CUDA_VISIBLE_DEVICES", "0");
  std::vector<std::string> notes;
  choose("f32", 1, gib, {}, "spill", notes);
  for (const char* const name : {"ONEDNN_DEFAULT_FPMATH_MODE", "CUBLAS_EMULATE_SINGLE_PRECISION",
                                 "CUBLAS_EMULATION_STRATEGY", "NVIDIA_TF32_OVERRIDE"}) {
    EXPECT_EQ(std::getenv(name), nullptr) << name;
    EXPECT_THAT(notes, testing::Contains(testing::StartsWith(std::string(name) + " is set"))) << name;
  }
  EXPECT_STREQ(std::getenv("CUDA_VISIBLE_DEVICES"), "0");
  notes.clear();
  choose("f32", 1, gib, {}, "spill", notes);
  EXPECT_TRUE(notes.empty());
}

TEST(RunChoices, SomeOfFreeMemoryIsLeftToOthersAndNeverAll) {
  EXPECT_EQ(budget_within(100 * gib), 90 * gib);
  EXPECT_EQ(budget_within(2 * gib), 2 * gib - 256 * mib);
  EXPECT_EQ(budget_within(256 * mib), 128 * mib);
}

}  // namespace
}  // namespace spillway
