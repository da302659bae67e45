#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "session/run_state.h"

namespace spillway {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

RunState a_run() {
  RunState state;
  state.step = 12;
  state.sequences = 96;
  state.products = {0.9 * 0.9, 0.1 + 0.2};
  ModelConfig config;
  config.hidden_size = 64;
  config.num_hidden_layers = 2;
  state.model = facts_of(config);
  TrainOptions options;
  options.max_steps = 100;
  state.options = texts_of_options(options);
  state.data_tokens = 600;
  state.data_hash = "00ff";
  state.numeric_key = "one";
  state.plan_hash = "77";
  return state;
}

std::string refusal(const RunState& then, const RunState& now) {
  try {
    check_resumable(then, now, false, "the commit of step 12");
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the commit of step 12"));
    return error.what();
  }
  return "nothing was refused";
}

TEST(SessionRunState, IsReadBackToTheSameBits) {
  const RunState state = a_run();
  const RunState read = parse_run_state(json_of(state), "file");
  EXPECT_EQ(json_of(read), json_of(state));
  EXPECT_EQ(read.products.beta2, 0.1 + 0.2);
  EXPECT_EQ(read.step, 12);
  EXPECT_EQ(read.sequences, 96);
  EXPECT_EQ(read.options, state.options);
}

TEST(SessionRunState, RefusesWhatIsNoStateAndNamesTheFile) {
  std::string negative = json_of(a_run());
  negative.replace(negative.find(": 12"), 4, ": -1");
  std::string newer = json_of(a_run());
  newer.replace(newer.find(": 1"), 3, ": 9");
  for (const std::string& text :
       {std::string("{"), std::string("[]"), std::string("{}"), std::string(), negative, newer})
    EXPECT_THROW(
        {
          try {
            parse_run_state(text, "folder/state.json");
          } catch (const UserError& error) {
            EXPECT_THAT(error.what(), HasSubstr("folder/state.json"));
            throw;
          }
        },
        UserError)
        << text;
}

TEST(SessionRunState, ARunGoesOnFromItself) { EXPECT_THAT(check_resumable(a_run(), a_run(), false, "it"), IsEmpty()); }

TEST(SessionRunState, AnotherModelIsRefusedWithTheKeyAndBothValues) {
  RunState now = a_run();
  now.model["num_hidden_layers"] = "3";
  EXPECT_THAT(refusal(a_run(), now), AllOf(HasSubstr("num_hidden_layers is 3"), HasSubstr("with 2;")));
}

TEST(SessionRunState, OtherDataIsRefused) {
  RunState now = a_run();
  now.data_tokens = 601;
  EXPECT_THAT(refusal(a_run(), now), AllOf(HasSubstr("data"), HasSubstr("601"), HasSubstr("600")));
  now = a_run();
  now.data_hash = "00fe";
  EXPECT_THAT(refusal(a_run(), now), AllOf(HasSubstr("data"), HasSubstr("00fe"), HasSubstr("00ff")));
}

TEST(SessionRunState, WhatDecidesTheOrderOfTheDataOrTheBitsMustStay) {
  for (const std::string key : {"seed", "shuffle", "max_seq_len", "dtype", "tile_elements"}) {
    RunState now = a_run();
    now.options[key] = "another";
    EXPECT_THAT(refusal(a_run(), now), AllOf(HasSubstr(key), HasSubstr("another"))) << key;
  }
}

TEST(SessionRunState, PlacementMayChangeSilently) {
  RunState now = a_run();
  for (const std::string key : {"memory", "threads", "spill_dir", "output_dir", "page_size", "logging_steps"})
    now.options[key] = "another";
  now.plan_hash = "78";
  EXPECT_THAT(check_resumable(a_run(), now, false, "it"), IsEmpty());
}

TEST(SessionRunState, AnotherFolderOfTheSameModelIsTold) {
  RunState then = a_run();
  then.options["model"] = "/usr/.";
  RunState now = a_run();
  now.options["model"] = "/usr";
  EXPECT_THAT(check_resumable(then, now, false, "it"), IsEmpty());
  now.options["model"] = "/usr/other";
  EXPECT_THAT(check_resumable(then, now, false, "step 3"),
              ElementsAre("model is /usr/other, and was /usr/. before; the weights are those of step 3"));
}

TEST(SessionRunState, TheScheduleMayChangeAndIsTold) {
  RunState now = a_run();
  now.options["learning_rate"] = "1e-3";
  EXPECT_THAT(check_resumable(a_run(), now, false, "it"), ElementsAre("learning_rate is 1e-3, and was 5e-05 before"));
}

TEST(SessionRunState, AnotherNumericKeyIsAskedForWithAFlag) {
  RunState now = a_run();
  now.numeric_key = "two";
  EXPECT_THAT(refusal(a_run(), now),
              AllOf(HasSubstr("\"one\""), HasSubstr("\"two\""), HasSubstr("allow_numeric_change")));
  EXPECT_THAT(check_resumable(a_run(), now, true, "it"), ElementsAre(HasSubstr("numeric key")));
}

}  // namespace
}  // namespace spillway
