// Options from YAML and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "cli/config_file.h"

namespace spillway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TrainOptions parse(std::string_view text) {
  TrainOptions options;
  parse_config(text, "run.yaml", options_of(options));
  return options;
}

std::string refusal(std::string_view text) {
  try {
    parse(text);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ConfigFile, ReadsScalarsAndLists) {
  const TrainOptions o = parse(
      "model: m  # a comment\n"
      "data: [a.txt, 'b c.txt']\n"
      "eval_data: e.txt\n"
      "learning_rate: 3e-4\n"
      "max_steps: \"20\"\n"
      "shuffle: false\n"
      "memory: 600MiB\n"
      "spill_dir:\n");
  EXPECT_EQ(o.model, "m");
  EXPECT_EQ(o.data, (std::vector<std::string>{"a.txt", "b c.txt"}));
  EXPECT_EQ(o.eval_data, std::vector<std::string>{"e.txt"});
  EXPECT_EQ(o.learning_rate, 3e-4);
  EXPECT_EQ(o.max_steps, 20);
  EXPECT_FALSE(o.shuffle);
  EXPECT_EQ(o.memory_bytes, std::int64_t{600} << 20);
  EXPECT_TRUE(o.spill_dir.empty());
}

TEST(ConfigFile, EmptyTextLeavesTheDefaults) {
  EXPECT_EQ(parse(""), TrainOptions());
  EXPECT_EQ(parse("# nothing\n"), TrainOptions());
}

TEST(ConfigFile, RefusesASecondDocument) {
  EXPECT_THAT(refusal("max_steps: 1\n---\nmax_steps: 3\n"),
              AllOf(HasSubstr("run.yaml"), HasSubstr("second YAML document"), HasSubstr("line 2")));
  EXPECT_THAT(refusal("---\n---\nmax_steps: 3\n"), HasSubstr("second YAML document"));
  EXPECT_EQ(parse("---\nmax_steps: 7\n---\n").max_steps, 7);
}

TEST(ConfigFile, UnknownKeyNamesFileKeyAndTheNearest) {
  EXPECT_THAT(refusal("lerning_rate: 1\n"),
              AllOf(HasSubstr("run.yaml"), HasSubstr("lerning_rate"), HasSubstr("did you mean learning_rate?")));
  EXPECT_THAT(refusal("qqqqqqqqqqqqqq: 1\n"), HasSubstr("unknown key qqqqqqqqqqqqqq"));
}

TEST(ConfigFile, WrongValueNamesFileKeyAndValue) {
  EXPECT_THAT(refusal("learning_rate: fast\n"),
              AllOf(HasSubstr("run.yaml"), HasSubstr("learning_rate"), HasSubstr("fast")));
  EXPECT_THAT(refusal("max_steps: [1, 2]\n"), AllOf(HasSubstr("max_steps"), HasSubstr("list")));
  EXPECT_THAT(refusal("data: {a: b}\n"), HasSubstr("run.yaml: data"));
  EXPECT_THAT(refusal("seed: 1\nseed: 2\n"), HasSubstr("twice"));
}

TEST(ConfigFile, RefusesWhatIsNoMapping) {
  EXPECT_THAT(refusal("[1, 2]"), HasSubstr("mapping"));
  EXPECT_THAT(refusal("just words"), HasSubstr("mapping"));
  EXPECT_THAT(refusal(",max_steps: 1"), AllOf(HasSubstr("run.yaml"), HasSubstr("not YAML in line 1")));
  EXPECT_THAT(refusal("a: [1"), AllOf(HasSubstr("run.yaml"), HasSubstr("not YAML")));
  EXPECT_THAT(refusal("? [a]\n: b\n"), HasSubstr("run.yaml"));
  EXPECT_THAT(refusal("&a *a : 1"), HasSubstr("run.yaml"));
  EXPECT_THAT(refusal("data: " + std::string(100000, '[')), HasSubstr("run.yaml"));
}

TEST(ConfigFile, PrintedConfigLoadsBackToTheSame) {
  TrainOptions o;
  o.model = "dir with \"quotes\", a # and a\ttab";
  o.data = {"a: b.txt", "[x]", "true", "1e3", "\xc3\xa9.txt"};
  o.output_dir = "null\x0f\x7f\r";
  o.learning_rate = 0.1 + 0.2;
  o.shuffle = false;
  o.memory_bytes = 123456789;
  o.huge_pages = false;
  o.delay_seed = 7;
  TrainOptions defaults;
  const std::string text = print_config(options_of(o), options_of(defaults));
  EXPECT_EQ(parse(text), o) << text;
}

TEST(ConfigFile, ExperimentalKeysStayOutOfThePrintedConfig) {
  TrainOptions o;
  TrainOptions defaults;
  EXPECT_THAT(print_config(options_of(o), options_of(defaults)), ::testing::Not(HasSubstr("poison")));
}

TEST(ConfigFile, MissingFileIsNamed) {
  TrainOptions options;
  const auto rows = options_of(options);
  try {
    load_config("no/such/run.yaml", rows);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no/such/run.yaml"));
  }
}

}  // namespace
}  // namespace spillway
