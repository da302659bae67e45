// `spillway tokenize`, `generate` and the tokens that `init` gives a model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "verbs.h"

namespace spillway {
namespace {

using testing::HasSubstr;

TEST_F(Verbs, TokenizeCountsWhatItReplacesAndRefusesUnknownIds) {
  const Outcome replaced = run({"tokenize", "--model", "bytes", "--text", "a\xff\xfe"});
  EXPECT_EQ(replaced.out, "97 239 191 189 239 191 189\n");
  EXPECT_THAT(replaced.err, HasSubstr("2 byte sequences"));
  EXPECT_EQ(run({"tokenize", "--model", "bytes", "--text", "a"}).err, "");
  expect_refused({"tokenize", "--model", "bytes", "--decode", "--ids", "1 257"}, "257 is beyond");
}

TEST_F(Verbs, GenerateTakesTheLargestCount) {
  const std::vector<std::string> words{"generate", "--model",          path("model"),         "--prompt",
                                       "a",        "--max-new-tokens", "9223372036854775807", "--memory",
                                       "1GiB"};
  const Outcome outcome = run(words);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

// Words of a SentencePiece tokenizer begin with a space, which its decoder takes from the first one of a text.
TEST_F(Verbs, GenerateKeepsTheSpaceBetweenThePromptAndWhatFollows) {
  const auto special = [](int id, const char* content) {
    return nlohmann::json{{"id", id},        {"content", content}, {"special", true},    {"single_word", false},
                          {"lstrip", false}, {"rstrip", false},    {"normalized", false}};
  };
  nlohmann::json tokenizer{{"version", "1.0"},
                           {"added_tokens", {special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")}},
                           {"normalizer", {{"type", "Prepend"}, {"prepend", "▁"}}},
                           {"pre_tokenizer", nullptr},
                           {"post_processor", nullptr},
                           {"decoder",
                            {{"type", "Sequence"},
                             {"decoders",
                              {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                               {{"type", "Fuse"}},
                               {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
                           {"model",
                            {{"type", "BPE"},
                             {"unk_token", "<unk>"},
                             {"ignore_merges", true},
                             {"vocab", {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}, {"▁a", 3}, {"▁b", 4}}},
                             {"merges", nlohmann::json::array()}}}};
  std::filesystem::create_directory(folder_ / "words");
  folder_.file("words/tokenizer.json", tokenizer.dump());
  ASSERT_EQ(run({"init", "--arch", "llama", "--tokenizer", path("words"), "--num-attention-heads", "2",
                 "--num-hidden-layers", "1", "--intermediate-size", "24", "--hidden-size", "16", path("words_model")})
                .code,
            0);
  const auto generate = [&](const std::string& seed) {
    return run({"generate", "--model", path("words_model"), "--prompt", "a", "--max-new-tokens", "8", "--temperature",
                "1", "--seed", seed});
  };
  std::size_t longest = 0;
  for (const std::string seed : {"1", "2", "3", "4"}) {
    const Outcome outcome = generate(seed);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, testing::MatchesRegex("a( [ab])*\n"));
    longest = std::max(longest, outcome.out.size());
  }
  EXPECT_GT(longest, 2U) << "something follows";
  folder_.file("words_model/generation_config.json", R"({"eos_token_id": [2, 3, 4]})");
  for (const std::string seed : {"1", "2", "3", "4"}) EXPECT_EQ(generate(seed).out, "a\n") << "each ends it";
}

// Added to a tokenizer, and not to the model.
TEST_F(Verbs, GenerateRefusesTokensThatTheModelDoesNotHave) {
  auto tokenizer = nlohmann::json::parse(folder_.text_of("model/tokenizer.json"));
  tokenizer["added_tokens"].push_back({{"id", 257},
                                       {"content", "<|user|>"},
                                       {"special", true},
                                       {"single_word", false},
                                       {"lstrip", false},
                                       {"rstrip", false},
                                       {"normalized", false}});
  folder_.file("model/tokenizer.json", tokenizer.dump());
  expect_refused({"generate", "--model", path("model"), "--prompt", "<|user|>a"}, "token id 257");
}

TEST_F(Verbs, APresetHasTheEndTokensOfTheTokenizerItIsGiven) {
  std::filesystem::create_directory(folder_ / "alone");
  folder_.file("alone/tokenizer.json", folder_.text_of("model/tokenizer.json"));  // whose text names an end token alone
  for (const std::string preset : {"gpt2-124m", "tinyllama-1.1b"}) {
    const bool gpt2 = preset == "gpt2-124m";
    const std::vector<std::string> sizes =
        gpt2 ? std::vector<std::string>{"--n-embd", "16", "--n-layer", "1", "--n-head", "2", "--vocab-size", "300"}
             : std::vector<std::string>{"--hidden-size",         "16", "--num-hidden-layers",   "1",
                                        "--num-attention-heads", "2",  "--num-key-value-heads", "2",
                                        "--intermediate-size",   "24", "--vocab-size",          "300"};
    std::vector<std::string> words{"init", "--preset", preset, "--tokenizer", path("alone"), path(preset)};
    words.insert(words.end(), sizes.begin(), sizes.end());
    ASSERT_EQ(run(words).code, 0);
    const auto config = nlohmann::json::parse(folder_.text_of(preset + "/config.json"));
    EXPECT_EQ(config["eos_token_id"], 256) << preset;
    EXPECT_TRUE(config.value("bos_token_id", nlohmann::json()).is_null()) << preset << " " << config["bos_token_id"];
  }
}

}  // namespace
}  // namespace spillway
