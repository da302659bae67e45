// What reading a tokenizer refuses, and what the files beside it say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "text/tokenizer.h"
#include "text/tokenizer_pattern.h"

namespace spillway {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

// A good file; the tests spoil one place of it.
json good_file() {
  return json::parse(R"({"version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 5, "content": "<e>", "single_word": false, "lstrip": false, "rstrip": false,
                      "normalized": false, "special": true}],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
              "end_of_word_suffix": "", "fuse_unk": false,
              "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4}, "merges": ["a b", "ab c"]}})");
}

std::string error_of(const std::string& text) {
  try {
    Tokenizer::parse(text, "T.json");
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

// The error after the value at a JSON pointer is replaced.
std::string error_with(const char* pointer, const char* value) {
  json file = good_file();
  file[json::json_pointer(pointer)] = json::parse(value);
  return error_of(file.dump());
}

std::string error_without(const char* parent, const char* key) {
  json file = good_file();
  file[json::json_pointer(parent)].erase(key);
  return error_of(file.dump());
}

TEST(TokenizerFile, TheGoodFileIsGood) { EXPECT_EQ(error_of(good_file().dump()), "no error"); }

TEST(TokenizerFile, EveryTruncationIsAnError) {
  const std::string text = good_file().dump();
  for (std::size_t size = 0; size < text.size(); ++size) {
    ASSERT_THAT(error_of(text.substr(0, size)), AllOf(HasSubstr("T.json"), HasSubstr("JSON"))) << size;
  }
}

TEST(TokenizerFile, OtherModelsAreRefusedByName) {
  EXPECT_THAT(error_with("/model/type", "\"Unigram\""), HasSubstr("a Unigram model is not supported"));
  EXPECT_THAT(error_with("/model/type", "\"WordPiece\""), HasSubstr("a WordPiece model is not supported"));
  EXPECT_THAT(error_with("/model/vocab", "[[\"a\", 0.5]]"), HasSubstr("Unigram"));
}

TEST(TokenizerFile, MalformedFieldsAreNamed) {
  EXPECT_THAT(error_of("[]"), HasSubstr("must hold an object"));
  EXPECT_THAT(error_of("{}"), HasSubstr("T.json: model is missing"));
  EXPECT_THAT(error_of("3"), HasSubstr("T.json"));
  EXPECT_THAT(error_without("/model", "vocab"), HasSubstr("model.vocab is missing"));
  EXPECT_THAT(error_without("/model", "merges"), HasSubstr("model.merges is missing"));
  EXPECT_THAT(error_with("/model/merges", "\"a b\""), HasSubstr("model.merges"));
  EXPECT_THAT(error_with("/model/merges", "{}"), HasSubstr("model.merges"));
  EXPECT_THAT(error_with("/model/merges/1", "\"ab\""), HasSubstr("model.merges[1]"));
  EXPECT_THAT(error_with("/model/merges/1", "\"a b c\""), HasSubstr("model.merges[1]"));
  EXPECT_THAT(error_with("/model/merges/1", "[\"a\"]"), HasSubstr("model.merges[1] has 1 parts"));
  EXPECT_THAT(error_with("/model/merges/1", "[\"a\", \"b\", \"c\"]"), HasSubstr("model.merges[1]"));
  EXPECT_THAT(error_with("/model/merges/1", "7"), HasSubstr("model.merges[1]"));
  EXPECT_THAT(error_with("/model/merges/1", "{}"), HasSubstr("model.merges[1]"));
  EXPECT_THAT(error_with("/model/merges/1", "\"ab x\""), HasSubstr("names \"x\""));
  EXPECT_THAT(error_with("/model/merges/1", "\"b c\""), HasSubstr("names \"bc\""));
  EXPECT_THAT(error_with("/model/vocab", "7"), HasSubstr("model.vocab has the wrong type"));
  EXPECT_THAT(error_with("/model/vocab/a", "-1"), HasSubstr("model.vocab[\"a\"]"));
  EXPECT_THAT(error_with("/model/vocab/a", "1.5"), HasSubstr("model.vocab[\"a\"]"));
  EXPECT_THAT(error_with("/model/vocab/a", "{}"), HasSubstr("model.vocab[\"a\"]"));
  EXPECT_THAT(error_with("/model/vocab/a", "99999999999"), HasSubstr("model.vocab[\"a\"] is id 99999999999"));
  EXPECT_THAT(error_with("/model/vocab/a", "1"), HasSubstr("gives id 1 to both"));
  EXPECT_THAT(error_of(R"({"model": {"vocab": {"a": 0, "a": 1}, "merges": []}})"), HasSubstr("\"a\" twice"));
  EXPECT_THAT(error_of(R"({"model": {"vocab": {}, "vocab": {}, "merges": []}})"), HasSubstr("appears twice"));
  EXPECT_THAT(error_with("/model/unk_token", "\"<unk>\""), HasSubstr("model.unk_token"));
  EXPECT_THAT(error_with("/model/fuse_unk", "1"), HasSubstr("model.fuse_unk must be true or false"));
  EXPECT_THAT(error_with("/model", "[]"), HasSubstr("model has the wrong type"));
  EXPECT_THAT(error_with("/added_tokens", "{}"), HasSubstr("added_tokens has the wrong type"));
  EXPECT_THAT(error_with("/added_tokens/0", "7"), HasSubstr("added_tokens[0]"));
  EXPECT_THAT(error_with("/added_tokens/0/id", "\"5\""), HasSubstr("added_tokens[0].id"));
  EXPECT_THAT(error_with("/added_tokens/0/id", "2"), HasSubstr("which model.vocab gives to \"c\""));
  EXPECT_THAT(error_with("/added_tokens/0/content", "\"c\""), HasSubstr("but model.vocab gives it 2"));
  EXPECT_THAT(error_with("/added_tokens/0/content", "null"), HasSubstr("added_tokens[0].content"));
  json twice = good_file();
  twice["added_tokens"].push_back(twice["added_tokens"][0]);
  EXPECT_THAT(error_of(twice.dump()), HasSubstr("twice"));
}

TEST(TokenizerFile, DeepNestingIsAnError) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_THAT(error_of(R"({"normalizer": )" + deep + "}"), HasSubstr("nested more than"));
  EXPECT_THAT(error_of(deep), HasSubstr("T.json"));
  std::string nested = R"({"type": "NFC"})";
  for (int i = 0; i < 20; ++i) nested = R"({"type": "Sequence", "normalizers": [)" + nested + "]}";
  EXPECT_THAT(error_with("/normalizer", nested.c_str()), HasSubstr("nested this deep"));
}

TEST(TokenizerFile, WhatIsNotImplementedIsRefusedByName) {
  EXPECT_THAT(error_with("/version", "\"2.0\""), HasSubstr("version"));
  EXPECT_THAT(error_with("/model/dropout", "0.1"), HasSubstr("dropout"));
  EXPECT_THAT(error_with("/model/end_of_word_suffix", "\"</w>\""), HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(error_with("/model/continuing_subword_prefix", "\"##\""), HasSubstr("continuing_subword_prefix"));
  EXPECT_THAT(error_with("/model/novelty", "1"), HasSubstr("novelty"));
  EXPECT_THAT(error_with("/normalizer", R"({"type": "Lowercase"})"), HasSubstr("the normalizer Lowercase"));
  EXPECT_THAT(error_with("/normalizer", R"({"type": "StripAccents"})"), HasSubstr("the normalizer StripAccents"));
  EXPECT_THAT(error_with("/normalizer", R"({"type": "Precompiled"})"), HasSubstr("the normalizer Precompiled"));
  EXPECT_THAT(error_with("/pre_tokenizer", R"({"type": "BertPreTokenizer"})"), HasSubstr("BertPreTokenizer"));
  EXPECT_THAT(error_with("/pre_tokenizer", R"({"type": "ByteLevel", "novelty": 1})"), HasSubstr("novelty"));
  EXPECT_THAT(error_with("/pre_tokenizer", R"({"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated"})"),
              HasSubstr("empty pattern"));
  EXPECT_THAT(error_with("/pre_tokenizer", R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "Odd"})"),
              HasSubstr("Odd"));
  EXPECT_THAT(error_with("/post_processor", R"({"type": "BertProcessing"})"), HasSubstr("BertProcessing"));
  EXPECT_THAT(error_with("/decoder", R"({"type": "WordPiece"})"), HasSubstr("the decoder WordPiece"));
  EXPECT_THAT(error_with("/decoder", R"({})"), HasSubstr("decoder.type is missing"));
}

TEST(TokenizerFile, TemplatesAreChecked) {
  const auto error = [](const char* single, const char* special) {
    return error_with("/post_processor", fmt::format(R"({{"type": "TemplateProcessing", "single": {}, "pair": [],
      "special_tokens": {}}})",
                                                     single, special)
                                             .c_str());
  };
  EXPECT_EQ(error(R"([{"Sequence": {"id": "A"}}])", "{}"), "no error");
  EXPECT_THAT(error(R"([{"Sequence": {"id": "B"}}])", "{}"), HasSubstr("sequence A"));
  EXPECT_THAT(error("[]", "{}"), HasSubstr("without the sequence A"));
  const char* with_token = R"([{"SpecialToken": {"id": "<e>"}}, {"Sequence": {"id": "A"}}])";
  EXPECT_EQ(error(with_token, R"({"<e>": {"ids": [5]}})"), "no error");
  EXPECT_THAT(error(with_token, "{}"), HasSubstr("<e>"));
  EXPECT_THAT(error(with_token, R"({"<e>": {"ids": [6]}})"), HasSubstr("ids below 6"));
  EXPECT_THAT(error(with_token, R"({"<e>": {"ids": 5}})"), HasSubstr("ids"));
}

TEST(TokenizerPattern, TranslatesOrRefuses) {
  EXPECT_EQ(translate_regex(R"(a\p{L}[^\p{Lu}\r]{1,3}?(?i:x)\.)", "T"), R"(a\p{L}[^\p{Lu}\r]{1,3}?(?i:x)\.)");
  EXPECT_EQ(translate_regex(R"([\p{Han}]\u00e9)", "T"), R"([\p{sc:Han}]\x{00e9})");
  for (const char* refused : {R"(\w)", R"(\b)", R"(\h)", R"(\K)", R"(\1)", "a$", "^a", "[a&&b]", "[a[b]]", "(?<n>a)",
                              "(*UTF)", "a{,3}", "a{2}+", "a{2}?", "a\\", R"(\pL)", R"(\p{L)", "{a}"}) {
    EXPECT_THROW(translate_regex(refused, "T"), UserError) << refused;
  }
  for (const char* broken : {"(a", "[a", "a{3,1}", "*", R"(\p{sc})"}) {
    EXPECT_THROW(Pattern::regex(broken, "T"), UserError) << broken;
  }
}

TEST(TokenizerPattern, ALimitOfTheMatcherIsAnError) {
  const Pattern pattern = Pattern::regex("(?:(?:a|aa)+)+[bc]", "T");
  EXPECT_THROW(pattern.split(std::string(60, 'a'), [](std::size_t, std::size_t, bool) {}), UserError);
}

class TokenizerFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "spillway_tokenizer_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const char* name, const std::string& text) { std::ofstream(folder_ / name) << text; }
  std::string load_error() {
    try {
      Tokenizer::load(folder_);
    } catch (const UserError& e) {
      return e.what();
    }
    return "no error";
  }
  std::filesystem::path folder_;
};

TEST_F(TokenizerFolder, MissingFileIsNamed) {
  EXPECT_THAT(load_error(), HasSubstr((folder_ / "tokenizer.json").string()));
  EXPECT_THROW(Tokenizer::load(folder_ / "absent" / "tokenizer.json"), UserError);
  std::filesystem::create_directory(folder_ / "tokenizer.json");
  EXPECT_THROW(Tokenizer::load(folder_), UserError);
}

TEST_F(TokenizerFolder, TheBytesFolderIsTheBytesTokenizer) {
  write("tokenizer.json", bytes_tokenizer_json());
  write("tokenizer_config.json", bytes_tokenizer_config_json());
  const std::string text = "Hé <|endoftext|> 你\n";
  for (const auto& path : {folder_, folder_ / "tokenizer.json"}) {
    const Tokenizer tokenizer = Tokenizer::load(path);
    EXPECT_EQ(tokenizer.encode(text), Tokenizer::bytes().encode(text));
    EXPECT_EQ(tokenizer.vocab_size(), 257);
    EXPECT_EQ(tokenizer.end_token(), TokenId{256});
    EXPECT_EQ(tokenizer.begin_token(), TokenId{256});
  }
}

TEST_F(TokenizerFolder, EndTokenComesFromTheFilesInOrder) {
  write("tokenizer.json", good_file().dump());
  EXPECT_EQ(Tokenizer::load(folder_).end_token(), std::nullopt);
  write("config.json", R"({"eos_token_id": 1, "bos_token_id": 0})");
  EXPECT_EQ(Tokenizer::load(folder_).end_token(), TokenId{1});
  EXPECT_EQ(Tokenizer::load(folder_).begin_token(), TokenId{0});
  write("generation_config.json", R"({"eos_token_id": [2, 1]})");
  EXPECT_EQ(Tokenizer::load(folder_).end_token(), TokenId{2});
  write("tokenizer_config.json",
        R"({"added_tokens_decoder": {"0": {"content": "x"}}, "eos_token": {"content": "<e>"}})");
  EXPECT_EQ(Tokenizer::load(folder_).end_token(), TokenId{5});
  write("generation_config.json", R"({"eos_token_id": [99999, 1]})");  // of a model that knows more
  EXPECT_EQ(Tokenizer::load(folder_).end_token(), TokenId{5});
  EXPECT_EQ(Tokenizer::load(folder_).stop_tokens(), (std::vector<TokenId>{99999, 1}));
  write("tokenizer_config.json", R"({"eos_token": "ab", "bos_token": null})");
  EXPECT_EQ(Tokenizer::load(folder_).end_token(), TokenId{3});
}

TEST_F(TokenizerFolder, BadFilesBesideItAreNamed) {
  write("tokenizer.json", good_file().dump());
  write("config.json", R"({"eos_token_id": 77})");
  EXPECT_THAT(load_error(), AllOf(HasSubstr("config.json"), HasSubstr("eos_token_id"), HasSubstr("77")));
  write("config.json", R"({"eos_token_id": )");
  EXPECT_THAT(load_error(), AllOf(HasSubstr("config.json"), HasSubstr("JSON")));
  write("config.json", "[]");
  EXPECT_THAT(load_error(), HasSubstr("must hold an object"));
  write("config.json", R"({"eos_token_id": "x"})");
  EXPECT_THAT(load_error(), HasSubstr("eos_token_id"));
}

}  // namespace
}  // namespace spillway
