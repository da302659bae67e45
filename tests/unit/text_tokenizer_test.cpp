#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <random>
#include <thread>

#include "base/error.h"
#include "text/bpe.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace spillway {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;

const char* const kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

json byte_level(bool use_regex, bool prefix = false) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", prefix}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

json split(const json& pattern, const std::string& behavior, bool invert = false) {
  return {{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", invert}};
}

json added(TokenId id, const std::string& content, const json& flags = json::object()) {
  json token = {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  token.update(flags);
  return token;
}

json file_of(json model) {
  return {{"version", "1.0"},          {"truncation", nullptr},
          {"padding", nullptr},        {"added_tokens", json::array()},
          {"normalizer", nullptr},     {"pre_tokenizer", nullptr},
          {"post_processor", nullptr}, {"decoder", nullptr},
          {"model", std::move(model)}};
}

// Bytes are the ids 0 to 255; each merge "a b" (in the byte-level alphabet) adds the next id.
json byte_level_file(const std::vector<std::string>& merges, json pretokenizer = byte_level(true)) {
  json vocabulary;
  for (int b = 0; b < 256; ++b) {
    std::string character;
    append_utf8(byte_level_character(static_cast<std::uint8_t>(b)), character);
    vocabulary[character] = b;
  }
  for (std::size_t i = 0; i < merges.size(); ++i) {
    std::string joined = merges[i];
    joined.erase(joined.find(' '), 1);
    vocabulary[joined] = 256 + i;
  }
  json file = file_of({{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}});
  file["pre_tokenizer"] = std::move(pretokenizer);
  file["decoder"] = byte_level(true);
  return file;
}

// Llama 2's shape: <unk> 0, <s> 1, </s> 2, bytes from 3, then `characters`, then merges.
constexpr TokenId kFirstByte = 3;
constexpr TokenId kFirstCharacter = kFirstByte + 256;
json sentencepiece_file(const std::vector<std::string>& characters,
                        const std::vector<std::pair<std::string, std::string>>& merges, bool fallback = true) {
  json vocabulary = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (TokenId b = 0; fallback && b < 256; ++b) vocabulary[fmt::format("<0x{:02X}>", b)] = kFirstByte + b;
  TokenId next = kFirstCharacter;
  for (const std::string& c : characters) vocabulary[c] = next++;
  json pairs = json::array();
  for (const auto& [left, right] : merges) {
    vocabulary[left + right] = next++;
    pairs.push_back({left, right});
  }
  json file = file_of({{"type", "BPE"},
                       {"unk_token", "<unk>"},
                       {"fuse_unk", true},
                       {"byte_fallback", fallback},
                       {"vocab", vocabulary},
                       {"merges", pairs}});
  file["added_tokens"] = {added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")};
  file["normalizer"] = {{"type", "Sequence"},
                        {"normalizers",
                         {{{"type", "Prepend"}, {"prepend", "▁"}},
                          {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}};
  file["decoder"] = {{"type", "Sequence"},
                     {"decoders",
                      {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                       {{"type", "ByteFallback"}},
                       {{"type", "Fuse"}},
                       {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  return file;
}

Tokenizer make(const json& file) { return Tokenizer::parse(file.dump(), "test.json"); }

// The pieces that a pre-tokenizer cuts, seen through ignore_merges: each piece becomes one token.
std::vector<std::string> pieces(const json& pretokenizer, const std::string& text) {
  json file = byte_level_file({}, {{"type", "Sequence"}, {"pretokenizers", {pretokenizer, byte_level(false)}}});
  // So the vocabulary has every part of the text.
  file["model"]["ignore_merges"] = true;
  TokenId next = 256;
  for (std::size_t begin = 0; begin < text.size(); ++begin) {
    for (std::size_t size = 2; begin + size <= text.size(); ++size) {
      std::string written;
      append_byte_level(std::string_view(text).substr(begin, size), written);
      if (!file["model"]["vocab"].contains(written)) file["model"]["vocab"][written] = next++;
    }
  }
  const Tokenizer tokenizer = make(file);
  std::vector<std::string> cut;
  for (const TokenId id : tokenizer.encode(text)) cut.push_back(tokenizer.decode(std::vector<TokenId>{id}));
  return cut;
}

std::string stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  StreamDecoder decoder(tokenizer);
  std::string text;
  for (const TokenId id : ids) {
    const std::string part = decoder.push(id);
    EXPECT_TRUE(is_valid_utf8(part));
    text += part;
  }
  return text + decoder.finish();
}

std::string random_text(std::mt19937& random) {
  static const std::vector<std::pair<char32_t, char32_t>> kRanges = {
      {' ', '~'},         {0x20, 0x20},     {'0', '9'},          {0, 0x1F},        {0xA0, 0x24F},
      {0x300, 0x36F},     {0x400, 0x4FF},   {0x900, 0x97F},      {0x4E00, 0x4E80}, {0xAC00, 0xAC40},
      {0x1F600, 0x1F64F}, {0x2000, 0x206F}, {0x10FFF0, 0x10FFFF}};
  std::string text;
  for (int runs = static_cast<int>(random() % 8); runs > 0; --runs) {
    const auto [low, high] = kRanges[random() % kRanges.size()];
    for (int n = static_cast<int>(random() % 6); n >= 0; --n)
      append_utf8(low + static_cast<char32_t>(random() % (high - low + 1)), text);
  }
  return text;
}

TEST(BytesTokenizer, IdsAreBytesAndTheEndTokenIs256) {
  const Tokenizer tokenizer = Tokenizer::bytes();
  EXPECT_EQ(tokenizer.vocab_size(), 257);
  EXPECT_EQ(tokenizer.end_token(), TokenId{256});
  std::string all_ascii;
  for (int b = 0; b < 128; ++b) all_ascii.push_back(static_cast<char>(b));
  const std::string text = all_ascii + "é 你 😀";
  const std::vector<TokenId> ids = tokenizer.encode(text);
  ASSERT_EQ(ids.size(), text.size());
  for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(ids[i], static_cast<std::uint8_t>(text[i]));
  EXPECT_EQ(tokenizer.decode(ids), text);
  EXPECT_THAT(tokenizer.encode("a<|endoftext|>b"), ElementsAre('a', 256, 'b'));
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{'a', 256, 'b'}, true), "ab");
  EXPECT_THAT(tokenizer.encode(""), IsEmpty());
}

TEST(BytesTokenizer, ConfigNamesItsEndToken) {
  EXPECT_EQ(json::parse(bytes_tokenizer_config_json())["eos_token"], "<|endoftext|>");
}

TEST(Tokenizer, JoinsByRankThenFromTheLeft) {
  // l l ranks below h e, so "hello" is he ll o; in "lllll" the leftmost pairs join first.
  const Tokenizer tokenizer = make(byte_level_file({"l l", "h e", "he ll", "ll ll"}));
  EXPECT_THAT(tokenizer.encode("hello"), ElementsAre(258, 'o'));
  EXPECT_THAT(tokenizer.encode("lllll"), ElementsAre(259, 'l'));
  EXPECT_THAT(tokenizer.encode("lll"), ElementsAre(256, 'l'));
}

TEST(Tokenizer, MergesMayComeBeforeTheVocabulary) {
  const std::string text =
      R"({"model": {"type": "BPE", "merges": [["a", "b"], "ab c"], "vocab": {"a":0,"b":1,"c":2,"ab":3,"abc":4}}})";
  EXPECT_THAT(Tokenizer::parse(text, "test").encode("abcab"), ElementsAre(4, 3));
}

TEST(Tokenizer, Gpt2PatternKeepsWordsApart) {
  const Tokenizer tokenizer = make(byte_level_file({"Ġ Ġ", "Ġ a", "a a", "ĠĠ ĠĠ"}));
  // "  a": one space by itself, then " a". A run at the end stays whole.
  EXPECT_THAT(tokenizer.encode("a  a    "), ElementsAre('a', ' ', 257, 259));
  EXPECT_THAT(tokenizer.encode("a\xC2\xA0 a"), ElementsAre('a', 0xC2, 0xA0, 257));
}

TEST(Tokenizer, PiecesOfTheKnownPatterns) {
  const json gpt2 = {
      {"type", "Split"},
      {"pattern", {{"Regex", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"}}},
      {"behavior", "Isolated"},
      {"invert", false}};
  EXPECT_THAT(pieces(gpt2, "I'll  go12!\n\n x"), ElementsAre("I", "'ll", " ", " go", "12", "!", "\n\n", " x"));
  const json llama3 = split({{"Regex", kLlama3}}, "Isolated");
  EXPECT_THAT(pieces(llama3, "I'LL  go12345!\n\n x"), ElementsAre("I", "'LL", " ", " go", "123", "45", "!\n\n", " x"));
  EXPECT_THAT(pieces(llama3, "$a\t b"), ElementsAre("$a", "\t", " b"));
  // U+0085 is white space, U+180E is not: PCRE2's own \s would say otherwise.
  EXPECT_THAT(pieces(split({{"Regex", R"(\s+)"}}, "Isolated"), "a\xC2\x85z\xE1\xA0\x8Ez"),
              ElementsAre("a", "\xC2\x85", "z\xE1\xA0\x8Ez"));
}

TEST(Tokenizer, SplitBehaviors) {
  const json dash = {{"String", "-"}};
  const std::string text = "-a--b-";
  EXPECT_THAT(pieces(split(dash, "Isolated"), text), ElementsAre("-", "a", "-", "-", "b", "-"));
  EXPECT_THAT(pieces(split(dash, "Removed"), text), ElementsAre("a", "b"));
  EXPECT_THAT(pieces(split(dash, "Removed", true), text), ElementsAre("-", "-", "-", "-"));
  EXPECT_THAT(pieces(split(dash, "MergedWithPrevious"), text), ElementsAre("-", "a-", "-", "b-"));
  EXPECT_THAT(pieces(split(dash, "MergedWithNext"), text), ElementsAre("-a", "-", "-b", "-"));
  EXPECT_THAT(pieces(split(dash, "Contiguous"), text), ElementsAre("-", "a", "--", "b", "-"));
  EXPECT_THAT(pieces({{"type", "Digits"}, {"individual_digits", true}}, "a12b"), ElementsAre("a", "1", "2", "b"));
  EXPECT_THAT(pieces({{"type", "Digits"}, {"individual_digits", false}}, "a12b"), ElementsAre("a", "12", "b"));
  // An expression that matches nothing at a place cuts there.
  EXPECT_THAT(pieces(split({{"Regex", "(?=b)"}}, "Isolated"), "abab"), ElementsAre("a", "ba", "b"));
}

TEST(Tokenizer, ByteLevelPrefixSpace) {
  const Tokenizer tokenizer = make(byte_level_file({"Ġ a"}, byte_level(true, true)));
  EXPECT_THAT(tokenizer.encode("a a"), ElementsAre(256, 256));
  EXPECT_THAT(tokenizer.encode(" a"), ElementsAre(256));
}

TEST(Tokenizer, IgnoreMergesTakesAWholePieceFromTheVocabulary) {
  json file = byte_level_file({"a b"});
  file["model"]["vocab"]["abc"] = 300;
  EXPECT_THAT(make(file).encode("abc"), ElementsAre(256, 'c'));
  file["model"]["ignore_merges"] = true;
  EXPECT_THAT(make(file).encode("abc"), ElementsAre(300));
  EXPECT_THAT(make(file).encode("abcd"), ElementsAre(256, 'c', 'd'));
}

TEST(Tokenizer, NormalForms) {
  json file = byte_level_file({});
  const auto bytes_after = [&](const char* form, const std::string& text) {
    file["normalizer"] = {{"type", form}};
    const std::vector<TokenId> ids = make(file).encode(text);
    return std::string(ids.begin(), ids.end());
  };
  EXPECT_EQ(bytes_after("NFC", "xe\u0301 y e\u0301"), "x\u00E9 y \u00E9");
  EXPECT_EQ(bytes_after("NFC", "<\u0338 \u1112\u1161\u11AB \u212B"), "\u226E \uD55C \u00C5");
  EXPECT_EQ(bytes_after("NFC", "\uFB01"), "\uFB01");
  EXPECT_EQ(bytes_after("NFD", "a\u00E9"), "ae\u0301");
  EXPECT_EQ(bytes_after("NFKC", "\uFB01\u00BD"), "fi1\u20442");
  EXPECT_EQ(bytes_after("NFKD", "\u00E9\uFB01"), "e\u0301fi");
}

TEST(Tokenizer, SentencepieceStyle) {
  const Tokenizer tokenizer = make(sentencepiece_file(
      {"▁", "h", "e", "l", "o"}, {{"l", "o"}, {"h", "e"}, {"he", "l"}, {"▁", "hel"}, {"▁hel", "lo"}, {"▁", "▁"}}));
  const TokenId space = kFirstCharacter;
  const TokenId hello = kFirstCharacter + 9;
  const TokenId spaces = kFirstCharacter + 10;
  EXPECT_EQ(tokenizer.token_text(hello), "▁hello");
  EXPECT_THAT(tokenizer.encode("hello hello"), ElementsAre(hello, hello));
  // The ▁hel of rank 3 joins before ▁▁ of rank 5.
  EXPECT_THAT(tokenizer.encode("hello   hello"), ElementsAre(hello, spaces, hello));
  EXPECT_THAT(tokenizer.encode("hé"), ElementsAre(space, kFirstCharacter + 1, kFirstByte + 0xC3, kFirstByte + 0xA9));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("  héllo 你\n")), "  héllo 你\n");
  EXPECT_THAT(tokenizer.encode(""), IsEmpty());
  // Each part between special tokens is normalized by itself.
  EXPECT_THAT(tokenizer.encode("<s>hello</s>hello"), ElementsAre(1, hello, 2, hello));
}

TEST(Tokenizer, TokensThatSpanWordsAreFound) {
  const Tokenizer tokenizer = make(sentencepiece_file({"▁", "a", "b"}, {{"a", "▁"}, {"a▁", "b"}}));
  EXPECT_THAT(tokenizer.encode("a b"), ElementsAre(kFirstCharacter, kFirstCharacter + 4));
}

TEST(Tokenizer, UnknownCharacters) {
  json file = sentencepiece_file({"▁", "a"}, {}, false);
  EXPECT_THAT(make(file).encode("axya"), ElementsAre(kFirstCharacter, kFirstCharacter + 1, 0, kFirstCharacter + 1));
  file["model"]["fuse_unk"] = false;
  EXPECT_THAT(make(file).encode("xy"), ElementsAre(kFirstCharacter, 0, 0));
  file["model"].erase("unk_token");
  EXPECT_THAT(make(file).encode("xya"), ElementsAre(kFirstCharacter, kFirstCharacter + 1));
}

TEST(Tokenizer, MetaspacePrependSchemes) {
  json file = sentencepiece_file({"▁", "a"}, {{"▁", "a"}});
  file["normalizer"] = nullptr;
  const auto ids = [&](const char* scheme, const std::string& text) {
    file["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", true}};
    return make(file).encode(text);
  };
  const TokenId a = kFirstCharacter + 1;
  const TokenId space_a = kFirstCharacter + 2;
  EXPECT_THAT(ids("always", "a<s>a a"), ElementsAre(space_a, 1, space_a, space_a));
  EXPECT_THAT(ids("first", "a<s>a a"), ElementsAre(space_a, 1, a, space_a));
  EXPECT_THAT(ids("never", "a<s>a a"), ElementsAre(a, 1, a, space_a));
  EXPECT_THAT(ids("always", " a"), ElementsAre(space_a));
}

TEST(Tokenizer, AddedTokensAreFoundLeftmostThenLongest) {
  json file = byte_level_file({});
  file["added_tokens"] = {added(300, "<a>"),
                          added(301, "<a><b>"),
                          added(302, "word", {{"single_word", true}}),
                          added(303, "<l>", {{"lstrip", true}}),
                          added(304, "<r>", {{"rstrip", true}}),
                          added(305, "\n\n", {{"special", false}})};
  const Tokenizer tokenizer = make(file);
  EXPECT_EQ(tokenizer.vocab_size(), 306);
  EXPECT_THAT(tokenizer.encode("<a><b><a>"), ElementsAre(301, 300));
  EXPECT_THAT(tokenizer.encode("<a><"), ElementsAre(300, '<'));
  EXPECT_THAT(tokenizer.encode("word-word"), ElementsAre(302, '-', 302));
  EXPECT_THAT(tokenizer.encode("éword").size(), 6u);
  EXPECT_THAT(tokenizer.encode("x \t<l> y"), ElementsAre('x', 303, ' ', 'y'));
  EXPECT_THAT(tokenizer.encode("x <r>\xE3\x80\x80 y"), ElementsAre('x', ' ', 304, 'y'));
  EXPECT_THAT(tokenizer.encode("\n\n\n"), ElementsAre(305, '\n'));
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{'a', 300, 305}, true), "a\n\n");
}

TEST(Tokenizer, NormalizedAddedTokensAreSoughtInNormalizedText) {
  json file = byte_level_file({});
  file["normalizer"] = {{"type", "NFC"}};
  file["added_tokens"] = {added(300, "e\u0301", {{"normalized", true}}), added(301, "a\u0301")};
  const Tokenizer tokenizer = make(file);
  EXPECT_THAT(tokenizer.encode("\u00E9"), ElementsAre(300));
  EXPECT_THAT(tokenizer.encode("e\u0301"), ElementsAre(300));
  EXPECT_THAT(tokenizer.encode("\u00E1"), ElementsAre(0xC3, 0xA1));
  EXPECT_THAT(tokenizer.encode("a\u0301"), ElementsAre(301));
}

TEST(Tokenizer, TemplateAddsSpecialTokensWhenAsked) {
  json file = sentencepiece_file({"▁", "a"}, {});
  const json token = [](const char* id) { return json{{"SpecialToken", {{"id", id}, {"type_id", 0}}}}; }("<s>");
  file["post_processor"] = {{"type", "Sequence"},
                            {"processors",
                             {byte_level(true),
                              {{"type", "TemplateProcessing"},
                               {"single", {token, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
                               {"pair", json::array()},
                               {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}}}}};
  const Tokenizer tokenizer = make(file);
  EXPECT_THAT(tokenizer.encode("a", true), ElementsAre(1, kFirstCharacter, kFirstCharacter + 1));
  EXPECT_THAT(tokenizer.encode("a"), ElementsAre(kFirstCharacter, kFirstCharacter + 1));
}

TEST(Tokenizer, DecodersOfByteTokensReplaceAnIllFormedRun) {
  const Tokenizer tokenizer = make(sentencepiece_file({"▁", "a"}, {}));
  const std::vector<TokenId> bad = {kFirstCharacter + 1, kFirstByte + 0xE5, kFirstByte + 0x8F, kFirstCharacter + 1};
  EXPECT_EQ(tokenizer.decode(bad), "a\uFFFD\uFFFDa");
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{9999, kFirstCharacter + 1}), "a");
}

TEST(Tokenizer, IllFormedInputIsReplacedFirst) {
  EXPECT_EQ(Tokenizer::bytes().encode("a\xFF"), Tokenizer::bytes().encode("a\uFFFD"));
}

TEST(Tokenizer, RandomTextComesBack) {
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  const json llama3 = {{"type", "Sequence"},
                       {"pretokenizers", {split({{"Regex", kLlama3}}, "Isolated"), byte_level(false)}}};
  std::vector<Tokenizer> tokenizers;
  tokenizers.push_back(Tokenizer::bytes());
  tokenizers.push_back(make(byte_level_file({"Ġ a", "Ã ©", "a b", "ä ¸", "Ġ Ġ"})));
  tokenizers.push_back(make(byte_level_file({"ð Ł", "ðŁ ĺ", "Ġ Ã"}, llama3)));
  tokenizers.push_back(make(sentencepiece_file({"▁", "a", "b", "é"}, {{"▁", "a"}, {"▁", "▁"}, {"a", "b"}})));
  for (int round = 0; round < 300; ++round) {
    const std::string text = random_text(random);
    for (const Tokenizer& tokenizer : tokenizers) {
      const std::vector<TokenId> ids = tokenizer.encode(text);
      ASSERT_EQ(tokenizer.decode(ids), text) << "seed " << seed << ", " << tokenizer.describe();
      ASSERT_EQ(stream(tokenizer, ids), text) << "seed " << seed << ", " << tokenizer.describe();
    }
  }
}

// The definition of byte-pair encoding, step by step.
std::vector<TokenId> slow_bpe(std::string_view text, const std::vector<std::string>& merges) {
  std::vector<std::string> symbols;
  for (const char c : text) symbols.emplace_back(1, c);
  for (bool joined = true; std::exchange(joined, false);) {
    for (std::size_t m = 0; m < merges.size() && !joined; ++m) {
      for (std::size_t i = 0; i + 1 < symbols.size() && !joined; ++i) {
        if (symbols[i] + " " + symbols[i + 1] != merges[m]) continue;
        symbols[i] += symbols[i + 1];
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        joined = true;
      }
    }
  }
  std::vector<TokenId> ids;
  for (const std::string& symbol : symbols) {
    for (std::size_t m = 0; m < merges.size() && symbol.size() > 1; ++m) {
      const std::size_t space = merges[m].find(' ');
      if (merges[m].substr(0, space) + merges[m].substr(space + 1) == symbol) {
        ids.push_back(static_cast<TokenId>(256 + m));
        break;
      }
    }
    if (symbol.size() == 1) ids.push_back(static_cast<std::uint8_t>(symbol[0]));
  }
  return ids;
}

TEST(Tokenizer, MatchesTheDefinitionOnRandomMerges) {
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  for (int round = 0; round < 40; ++round) {
    std::vector<std::string> tokens = {"a", "b", "c"};
    std::vector<std::string> merges;
    while (merges.size() < 25) {
      const std::string left = tokens[random() % tokens.size()];
      const std::string right = tokens[random() % tokens.size()];
      if (std::find(tokens.begin(), tokens.end(), left + right) != tokens.end() || left.size() + right.size() > 12)
        continue;
      tokens.push_back(left + right);
      merges.push_back(left + " " + right);
    }
    const Tokenizer tokenizer = make(byte_level_file(merges, byte_level(false)));
    for (int text_round = 0; text_round < 20; ++text_round) {
      std::string text;
      for (std::size_t n = random() % 60; n > 0; --n) text.push_back(static_cast<char>('a' + random() % 3));
      ASSERT_EQ(tokenizer.encode(text), slow_bpe(text, merges)) << "seed " << seed << " text " << text;
    }
  }
}

TEST(Tokenizer, ALongPieceWithoutWordsIsNotQuadratic) {
  // Quadratic work on a million characters would not end within the test's time limit.
  const Tokenizer tokenizer = make(byte_level_file({"a a", "aa aa", "aaaa aaaa"}, byte_level(false)));
  EXPECT_EQ(tokenizer.encode(std::string(1'000'000, 'a')).size(), 125'000u);
}

TEST(Tokenizer, EncodesFromSeveralThreads) {
  const Tokenizer tokenizer = make(byte_level_file({"Ġ a", "a b", "b c"}));
  std::string text;
  for (int i = 0; i < 500; ++i) text += fmt::format("abc {} cab ab ", i % 50);
  const std::vector<TokenId> expected = tokenizer.encode(text);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) wrong += tokenizer.encode(text) != expected || tokenizer.decode(expected) != text;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(StreamDecoder, HoldsBackUnfinishedCharacters) {
  const Tokenizer tokenizer = Tokenizer::bytes();
  StreamDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.push('a'), "a");
  EXPECT_EQ(decoder.push(0xE4), "");
  EXPECT_EQ(decoder.push(0xBD), "");
  EXPECT_EQ(decoder.push(0xA0), "你");
  EXPECT_EQ(decoder.push(0xE4), "");
  EXPECT_EQ(decoder.push('b'), "\uFFFDb");
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(decoder.push('c'), "c");
}

TEST(StreamDecoder, StripsOnlyTheBeginOfTheText) {
  const Tokenizer tokenizer = make(sentencepiece_file({"▁", "a"}, {{"▁", "a"}}));
  StreamDecoder decoder(tokenizer, true);
  EXPECT_EQ(decoder.push(1), "");
  EXPECT_EQ(decoder.push(kFirstCharacter + 2), "a");
  EXPECT_EQ(decoder.push(kFirstCharacter + 2), " a");
}

TEST(Utf8, ReplacesMaximalSubparts) {
  std::int64_t replaced = 0;
  // The example of the Unicode standard, table 3-11: one for each maximal subpart of a truncated sequence.
  EXPECT_EQ(replace_bad_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", &replaced), "\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(replaced, 4);
  EXPECT_EQ(replace_bad_utf8("\xC0\xAF\xED\xA0\x80\xF4\x90", &replaced), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replaced, 11);
  EXPECT_EQ(replace_bad_utf8("é你😀", &replaced), "é你😀");
  EXPECT_EQ(replaced, 11);
  EXPECT_EQ(incomplete_tail_bytes("a\xF0\x9F\x98"), 3u);
  EXPECT_EQ(incomplete_tail_bytes("a\xF0\x8F"), 0u);
  EXPECT_EQ(incomplete_tail_bytes("é"), 0u);
}

}  // namespace
}  // namespace spillway
