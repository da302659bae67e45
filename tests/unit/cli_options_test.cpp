// The option tables: what they read, what they refuse, and the learning-rate schedules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <set>

#include "base/bytes.h"
#include "base/error.h"
#include "session/options.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;

void set(TrainOptions& options, std::string_view key, std::vector<std::string> texts) {
  for (const Option& row : options_of(options)) {
    if (row.key == key) return set_option(row, texts, row.flag());
  }
  FAIL() << "no key " << key;
}

std::string refusal(std::string_view key, std::vector<std::string> texts) {
  TrainOptions options;
  try {
    set(options, key, std::move(texts));
  } catch (const UserError& error) {
    EXPECT_EQ(options, TrainOptions()) << "a refused value must change nothing";
    return error.what();
  }
  return "accepted";
}

std::string invalid(const TrainOptions& options) {
  try {
    validate(options, TrainUse::train);
  } catch (const UserError& error) {
    return error.what();
  }
  return "valid";
}

TEST(Options, DefaultsAreThoseOfHuggingFace) {
  const TrainOptions o;
  EXPECT_EQ(o.learning_rate, 5e-5);
  EXPECT_EQ(o.per_device_train_batch_size, 8);
  EXPECT_EQ(o.gradient_accumulation_steps, 1);
  EXPECT_EQ(o.num_train_epochs, 3.0);
  EXPECT_EQ(o.max_steps, -1);
  EXPECT_EQ(o.adam_beta1, 0.9);
  EXPECT_EQ(o.adam_beta2, 0.999);
  EXPECT_EQ(o.adam_epsilon, 1e-8);
  EXPECT_EQ(o.weight_decay, 0.0);
  EXPECT_EQ(o.max_grad_norm, 1.0);
  EXPECT_EQ(o.lr_scheduler_type, "linear");
  EXPECT_EQ(o.warmup_steps, 0);
  EXPECT_EQ(o.seed, 42);
}

TEST(Options, EveryTrainingKeyIsThereOnce) {
  TrainOptions options;
  std::set<std::string_view> keys;
  for (const Option& row : options_of(options)) {
    EXPECT_TRUE(keys.insert(row.key).second) << row.key;
    EXPECT_FALSE(row.help.empty()) << row.key;
  }
  for (const char* key : {"model",
                          "data",
                          "output_dir",
                          "max_steps",
                          "num_train_epochs",
                          "per_device_train_batch_size",
                          "gradient_accumulation_steps",
                          "max_seq_len",
                          "learning_rate",
                          "lr_scheduler_type",
                          "warmup_steps",
                          "weight_decay",
                          "adam_beta1",
                          "adam_beta2",
                          "adam_epsilon",
                          "max_grad_norm",
                          "seed",
                          "shuffle",
                          "logging_steps",
                          "dtype",
                          "threads",
                          "memory",
                          "spill_dir",
                          "eval_data",
                          "eval_steps"})
    EXPECT_TRUE(keys.contains(key)) << key;
}

TEST(Options, EveryRowReadsBackWhatItWrites) {
  TrainOptions from;
  from.model = "a model: \"quoted\"\n";
  from.data = {"one.txt", "two, three.txt"};
  from.learning_rate = 0.1 + 0.2;
  from.adam_epsilon = 5e-324;
  from.memory_bytes = 600 * mib + 1;
  from.max_steps = 9007199254740993;
  from.shuffle = false;
  TrainOptions to;
  const auto source = options_of(from);
  const auto target = options_of(to);
  for (std::size_t i = 0; i < source.size(); ++i) set_option(target[i], texts_of(source[i]), source[i].key);
  EXPECT_EQ(from, to);
}

TEST(Options, ReadsNumbersAsPeopleWriteThem) {
  TrainOptions o;
  set(o, "max_steps", {"1e3"});
  EXPECT_EQ(o.max_steps, 1000);
  set(o, "learning_rate", {"3e-4"});
  EXPECT_EQ(o.learning_rate, 3e-4);
  set(o, "learning_rate", {"1"});
  EXPECT_EQ(o.learning_rate, 1.0);
  set(o, "memory", {"1.5GiB"});
  EXPECT_EQ(o.memory_bytes, 3 * gib / 2);
  set(o, "memory", {"auto"});
  EXPECT_EQ(o.memory_bytes, 0);
  set(o, "shuffle", {"FALSE"});
  EXPECT_FALSE(o.shuffle);
  set(o, "shuffle", {"True"});
  EXPECT_TRUE(o.shuffle);
}

TEST(Options, RefusesWithKeyAndValue) {
  EXPECT_THAT(refusal("learning_rate", {"fast"}), AllOf(HasSubstr("--learning-rate"), HasSubstr("fast")));
  EXPECT_THAT(refusal("learning_rate", {"1e-4x"}), HasSubstr("1e-4x"));
  EXPECT_THAT(refusal("learning_rate", {"nan"}), HasSubstr("nan"));
  EXPECT_THAT(refusal("learning_rate", {"inf"}), AllOf(HasSubstr("inf"), HasSubstr("finite number")));
  EXPECT_THAT(refusal("learning_rate", {"-1"}), HasSubstr("at least 0"));
  EXPECT_THAT(refusal("learning_rate", {""}), HasSubstr("not a number"));
  EXPECT_THAT(refusal("max_steps", {"1.5"}), AllOf(HasSubstr("--max-steps"), HasSubstr("1.5")));
  EXPECT_THAT(refusal("max_steps", {"-2"}), HasSubstr("at least -1"));
  EXPECT_THAT(refusal("max_steps", {"1e300"}), HasSubstr("1e300"));
  EXPECT_THAT(refusal("max_steps", {"99999999999999999999"}), HasSubstr("whole number"));
  EXPECT_THAT(refusal("adam_beta1", {"1"}), HasSubstr("below 1"));
  EXPECT_THAT(refusal("adam_epsilon", {"0"}), HasSubstr("above 0"));
  EXPECT_THAT(refusal("dtype", {"fp8"}), AllOf(HasSubstr("fp8"), HasSubstr("bf16")));
  EXPECT_THAT(refusal("shuffle", {"maybe"}), HasSubstr("maybe"));
  EXPECT_THAT(refusal("memory", {"lots"}), AllOf(HasSubstr("--memory"), HasSubstr("lots")));
  EXPECT_THAT(refusal("seed", {"1", "2"}), HasSubstr("2 values"));
  EXPECT_THAT(refusal("data", {"a", ""}), HasSubstr("empty"));
}

TEST(Options, ValidatesWhatNoRowCan) {
  TrainOptions o;
  EXPECT_THAT(invalid(o), HasSubstr("--model"));
  o.model = "m";
  EXPECT_THAT(invalid(o), HasSubstr("--data"));
  o.data = {"d"};
  EXPECT_THAT(invalid(o), HasSubstr("--output-dir"));
  EXPECT_NO_THROW(validate(o, TrainUse::plan));
  o.output_dir = "o";
  EXPECT_EQ(invalid(o), "valid");
  o.max_grad_norm = 1e-46;
  EXPECT_THAT(invalid(o), HasSubstr("0 in f32"));
  o.max_grad_norm = 1;
  o.eval_steps = 5;
  EXPECT_THAT(invalid(o), HasSubstr("eval_data"));
  o.eval_steps = 0;
  o.decay_steps = 8;
  EXPECT_THAT(invalid(o), HasSubstr("decay_steps"));
  o.lr_scheduler_type = "warmup_stable_decay";
  o.max_steps = 10;
  o.warmup_steps = 3;
  EXPECT_THAT(invalid(o), HasSubstr("max_steps 10"));
}

TEST(Options, FindsTheNearestWord) {
  const std::vector<std::string> words = {"learning_rate", "max_steps", "seed"};
  EXPECT_EQ(nearest("lerning_rate", words), "learning_rate");
  EXPECT_EQ(nearest("maxsteps", words), "max_steps");
  EXPECT_EQ(nearest("sed", words), "seed");
  EXPECT_EQ(nearest("qqqqqqqqqqqq", words), "");
  EXPECT_EQ(nearest("LEARNING_RATE", words), "learning_rate");
  EXPECT_EQ(nearest("--learning_rate", std::vector<std::string>{"--learning-rate"}), "--learning-rate");
  EXPECT_EQ(nearest("batch_size", std::vector<std::string>{"max_steps", "per_device_train_batch_size"}),
            "per_device_train_batch_size");
}

TrainOptions schedule(const char* type, std::int64_t warmup_steps) {
  TrainOptions o;
  o.learning_rate = 2.0;
  o.lr_scheduler_type = type;
  o.warmup_steps = warmup_steps;
  return o;
}

TEST(Schedule, WarmupIsLinearFromZeroForAllTypes) {
  for (const char* type : {"constant", "linear", "cosine", "warmup_stable_decay"}) {
    const TrainOptions o = schedule(type, 4);
    EXPECT_EQ(learning_rate_at(o, 0, 100), 0.0) << type;
    EXPECT_EQ(learning_rate_at(o, 1, 100), 0.5) << type;
    EXPECT_EQ(learning_rate_at(o, 4, 100), 2.0) << type;
  }
}

TEST(Schedule, LinearFallsToZeroAfterTheLastStep) {
  const TrainOptions o = schedule("linear", 0);
  EXPECT_DOUBLE_EQ(learning_rate_at(o, 0, 10), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(o, 5, 10), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(o, 9, 10), 0.2);
  EXPECT_EQ(learning_rate_at(o, 10, 10), 0.0);
  EXPECT_EQ(learning_rate_at(o, 11, 10), 0.0);
}

TEST(Schedule, CosineIsHalfAWave) {
  const TrainOptions o = schedule("cosine", 2);
  EXPECT_DOUBLE_EQ(learning_rate_at(o, 2, 10), 2.0);
  EXPECT_NEAR(learning_rate_at(o, 6, 10), 1.0, 1e-15);
  EXPECT_DOUBLE_EQ(learning_rate_at(o, 4, 10), 1.0 + std::cos(std::numbers::pi / 4));
  EXPECT_NEAR(learning_rate_at(o, 10, 10), 0.0, 1e-15);
}

TEST(Schedule, StableDecayHoldsThenFalls) {
  TrainOptions o = schedule("warmup_stable_decay", 2);
  o.decay_steps = 4;
  EXPECT_EQ(learning_rate_at(o, 15, 20), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(o, 16, 20), 2.0);
  EXPECT_NEAR(learning_rate_at(o, 18, 20), 1.0, 1e-15);
  EXPECT_GT(learning_rate_at(o, 19, 20), 0.0);
  EXPECT_EQ(learning_rate_at(o, 20, 20), 0.0);
  o.decay_steps = -1;  // a tenth: 2 of 20
  EXPECT_EQ(learning_rate_at(o, 17, 20), 2.0);
  EXPECT_NEAR(learning_rate_at(o, 19, 20), 1.0, 1e-15);
}

TEST(Schedule, ConstantStays) {
  const TrainOptions o = schedule("constant", 0);
  EXPECT_EQ(learning_rate_at(o, 0, 1), 2.0);
  EXPECT_EQ(learning_rate_at(o, 1000, 1), 2.0);
}

}  // namespace
}  // namespace spillway
