#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "scratch_folder.h"
#include "text/dataset.h"
#include "text/dataset_cut.h"

namespace spillway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Property;
using ::testing::Throws;

// One id a byte.
class ByteEncoder : public Encoder {
 public:
  std::vector<std::uint32_t> encode(std::string_view text) const override {
    std::vector<std::uint32_t> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::optional<std::uint32_t> end_token() const override { return 256; }
};

// Words by pattern: white space joins the word after it when it is one space, punctuation takes the line ends after it.
class WordEncoder : public Encoder {
 public:
  std::vector<std::uint32_t> encode(std::string_view text) const override {
    std::vector<std::uint32_t> ids;
    std::size_t at = 0;
    while (at < text.size()) {
      const std::size_t end = end_of_word(text, at);
      ids.push_back(id_of(text.substr(at, end - at)));
      at = end;
    }
    return ids;
  }
  std::optional<std::uint32_t> end_token() const override { return 0; }

 protected:
  std::uint32_t id_of(std::string_view word) const {
    return ids_.try_emplace(std::string(word), static_cast<std::uint32_t>(ids_.size() + 1)).first->second;
  }

 private:
  static bool letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }
  static std::size_t end_of_word(std::string_view text, std::size_t at) {
    std::size_t end = at;
    if (text[end] == ' ' && end + 1 < text.size() && text[end + 1] != ' ' && text[end + 1] != '\n') ++end;
    if (letter(text[end])) {
      while (end < text.size() && letter(text[end])) ++end;
    } else if (text[end] == ' ' || text[end] == '\n') {
      while (end < text.size() && text[end] == text[at]) ++end;
    } else {
      ++end;
      while (end < text.size() && text[end] == '\n') ++end;
    }
    return end;
  }

  mutable std::map<std::string, std::uint32_t> ids_;
};

// Puts a space before whatever it is given, as SentencePiece does.
class PrefixEncoder : public WordEncoder {
 public:
  std::vector<std::uint32_t> encode(std::string_view text) const override {
    return WordEncoder::encode(fmt::format(" {}", text));
  }
};

std::vector<std::int32_t> all_ids(const TokenStore& store) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(store.count()));
  store.read(0, ids);
  return ids;
}

TokenStore build(const ScratchFolder& folder, std::vector<std::filesystem::path> files, std::int64_t vocab_size = 257) {
  return TokenStore::build(files, ByteEncoder(), vocab_size, folder / "tokens");
}

template <typename Call>
void expect_refused(const Call& call, const std::string& what) {
  EXPECT_THAT(call, Throws<UserError>(Property(&UserError::what, HasSubstr(what)))) << what;
}

std::filesystem::path npy_file(const ScratchFolder& folder, std::string_view name, std::vector<std::uint16_t> ids) {
  const std::string header = fmt::format("{{'descr': '<u2', 'fortran_order': False, 'shape': ({},), }}\n", ids.size());
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size());
  text += '\0';
  text += header;
  text.append(reinterpret_cast<const char*>(ids.data()), ids.size() * 2);
  return folder.file(name, text);
}

TEST(TokenStore, JoinsDocumentsWithTheEndToken) {
  const ScratchFolder folder;
  const TokenStore store =
      build(folder, {folder.file("a.txt", "ab"), folder.file("b.jsonl", "{\"text\":\"c\"}\n{\"text\":\"\"}\n"),
                     npy_file(folder, "c.npy", {7, 8})});
  EXPECT_THAT(all_ids(store), ElementsAre('a', 'b', 256, 'c', 256, 256, 7, 8));
  EXPECT_EQ(store.counts().documents, 3);
  EXPECT_EQ(store.counts().text_bytes, 3);
  EXPECT_FALSE(std::filesystem::exists(folder / "tokens"));
}

TEST(TokenStore, WideVocabulariesKeepTheirIds) {
  const ScratchFolder folder;
  const TokenStore store = build(folder, {folder.file("a.txt", "ab")}, 100000);
  EXPECT_THAT(all_ids(store), ElementsAre('a', 'b', 256));
}

TEST(TokenStore, ASingleNpyIsUsedInPlace) {
  const ScratchFolder folder;
  const TokenStore store = build(folder, {npy_file(folder, "c.npy", {7, 8, 9})});
  EXPECT_THAT(all_ids(store), ElementsAre(7, 8, 9));
  EXPECT_FALSE(std::filesystem::exists(folder / "tokens"));
}

TEST(TokenStore, CountsReplacedText) {
  const ScratchFolder folder;
  const TokenStore store =
      build(folder, {folder.file("a.txt", "a\xFF\xE2\x82"), folder.file("b.jsonl", "{\"text\":\"\xC3\"}")});
  EXPECT_EQ(store.counts().replaced, 3);
}

TEST(TokenStore, LongDocumentsGiveTheIdsOfTheWhole) {
  const ScratchFolder folder;
  std::string text;
  while (static_cast<std::int64_t>(text.size()) < 2 * text_part_bytes + 1000) {
    text += fmt::format("some words, and {} more\n", text.size());
  }
  const auto path = folder.file("a.txt", text);
  const WordEncoder words;
  const TokenStore store = TokenStore::build(std::span(&path, 1), words, 10'000'000, folder / "tokens");
  const std::vector<std::uint32_t> whole = words.encode(text);
  const std::vector<std::int32_t> ids = all_ids(store);
  ASSERT_EQ(ids.size(), whole.size() + 1);
  EXPECT_TRUE(std::equal(whole.begin(), whole.end(), ids.begin(),
                         [](auto a, auto b) { return static_cast<std::int32_t>(a) == b; }));
  EXPECT_EQ(store.counts().forced_cuts, 0);
  EXPECT_EQ(store.counts().text_bytes, static_cast<std::int64_t>(text.size()));
}

// Remembers the longest text it was given.
class MeasuringEncoder : public ByteEncoder {
 public:
  std::vector<std::uint32_t> encode(std::string_view text) const override {
    longest_ = std::max(longest_, static_cast<std::int64_t>(text.size()));
    return ByteEncoder::encode(text);
  }
  std::int64_t longest() const { return longest_; }

 private:
  mutable std::int64_t longest_ = 0;
};

TEST(TokenStore, EncodesInPartsThatSmallBudgetsCanHold) {
  const ScratchFolder folder;
  const std::string text(3 * static_cast<std::size_t>(mib), 'a');
  for (const auto& path : {folder.file("a.txt", text), folder.file("a.jsonl", "{\"text\":\"" + text + "\"}")}) {
    const MeasuringEncoder encoder;
    TokenStore::build(std::span(&path, 1), encoder, 257, folder / "tokens");
    EXPECT_LE(encoder.longest(), 512 * kib) << path;
  }
}

TEST(TokenStore, LimitsLines) {
  const ScratchFolder folder;
  const auto path = folder.file("a.jsonl", "{\"text\": \"0123456789\"}");
  expect_refused([&] { TokenStore::build(std::span(&path, 1), ByteEncoder(), 257, folder / "tokens", {}, 8); },
                 "a.jsonl, line 1: longer than the 8 B that a line may have; cut the document in several or give more");
}

TEST(TokenStore, TellsProgress) {
  const ScratchFolder folder;
  const std::vector<std::filesystem::path> files{folder.file("a.txt", "ab"),
                                                 folder.file("b.jsonl", "{\"text\":\"c\"}\n")};
  std::vector<std::int64_t> done;
  std::int64_t total = 0;
  TokenStore::build(files, ByteEncoder(), 257, folder / "tokens", [&](std::int64_t now, std::int64_t all) {
    done.push_back(now);
    total = all;
  });
  EXPECT_TRUE(std::ranges::is_sorted(done));
  EXPECT_EQ(total, 15);
  EXPECT_EQ(done.back(), total);
}

TEST(TokenStore, RefusesBadDataByName) {
  const ScratchFolder folder;
  expect_refused([&] { build(folder, {}); }, "no data files");
  expect_refused([&] { build(folder, {folder / "none.txt"}); }, "none.txt");
  expect_refused([&] { build(folder, {folder.file("a.csv", "x")}); }, "a.csv");
  expect_refused([&] { build(folder, {folder.file("a.txt", "")}); }, "a.txt is empty");
  expect_refused([&] { build(folder, {folder.file("a.jsonl", "\n\n")}); }, "no documents");
  expect_refused([&] { build(folder, {npy_file(folder, "a.npy", {})}); }, "a.npy is empty");
  expect_refused([&] { build(folder, {npy_file(folder, "a.npy", {1, 300})}); }, "element 1 is token id 300");
  expect_refused([&] { build(folder, {folder.file("a.txt", "ab")}, 256); }, "token id 256");
}

TEST(Cut, KeepsTheIdsOfTheWhole) {
  std::string text;
  while (text.size() < 5000) text += "one, two.\n\nthree   four\nfive;\n";
  for (const std::size_t bytes : {1000U, 1001U, 1013U, 4000U}) {
    const WordEncoder words;
    const Cut cut = find_cut(std::string_view(text).substr(0, bytes), words);
    EXPECT_FALSE(cut.forced);
    EXPECT_EQ(cut.left_bytes, cut.right_begin);
    std::vector<std::uint32_t> ids = words.encode(text.substr(0, cut.left_bytes));
    const std::vector<std::uint32_t> right = words.encode(text.substr(cut.right_begin));
    ids.insert(ids.end(), right.begin(), right.end());
    EXPECT_EQ(ids, words.encode(text));
  }
}

TEST(Cut, DropsTheSpaceThatATokenizerPutsBack) {
  std::string text;
  while (text.size() < 5000) text += "one two three\nfour five ";
  const PrefixEncoder words;
  const Cut cut = find_cut(std::string_view(text).substr(0, 2000), words);
  EXPECT_FALSE(cut.forced);
  EXPECT_EQ(cut.right_begin, cut.left_bytes + 1);
  std::vector<std::uint32_t> ids = words.encode(text.substr(0, cut.left_bytes));
  const std::vector<std::uint32_t> right = words.encode(text.substr(cut.right_begin));
  ids.insert(ids.end(), right.begin(), right.end());
  EXPECT_EQ(ids, words.encode(text));
}

TEST(Cut, IsForcedBetweenCharactersWhenNothingElseWorks) {
  std::string text;
  while (text.size() < 3000) text += "\xE2\x82\xAC";
  const PrefixEncoder words;
  const Cut cut = find_cut(text, words);
  EXPECT_TRUE(cut.forced);
  EXPECT_EQ(cut.left_bytes % 3, 0U);
  const Cut bytes_cut = find_cut(text, ByteEncoder());
  EXPECT_FALSE(bytes_cut.forced);
  EXPECT_EQ(bytes_cut.left_bytes % 3, 0U);
}

class WindowsTest : public ::testing::Test {
 protected:
  TokenStore store_of(int count) {
    std::vector<std::uint16_t> ids(static_cast<std::size_t>(count));
    std::iota(ids.begin(), ids.end(), std::uint16_t{0});
    return build(folder_, {npy_file(folder_, "ids.npy", ids)}, 65536);
  }
  ScratchFolder folder_;
};

TEST_F(WindowsTest, WindowsOverlapByTheirTarget) {
  const TokenStore store = store_of(13);
  const Windows windows(store, 4, {});
  ASSERT_EQ(windows.count(), 3);
  std::vector<std::int32_t> ids(4), targets(4);
  windows.read(2, ids, targets);
  EXPECT_THAT(ids, ElementsAre(8, 9, 10, 11));
  EXPECT_THAT(targets, ElementsAre(9, 10, 11, 12));
  EXPECT_EQ(Windows(store_of(12), 4, {}).count(), 2);
  EXPECT_EQ(Windows(store_of(5), 4, {}).count(), 1);
}

TEST_F(WindowsTest, LongWindowsAreReadWhole) {
  const TokenStore store = store_of(10001);
  const Windows windows(store, 5000, {});
  std::vector<std::int32_t> ids(5000), targets(5000);
  windows.read(1, ids, targets);
  for (std::int32_t i = 0; i < 5000; ++i) {
    ASSERT_EQ(ids[static_cast<std::size_t>(i)], 5000 + i);
    ASSERT_EQ(targets[static_cast<std::size_t>(i)], 5001 + i);
  }
}

TEST_F(WindowsTest, TooLittleDataIsRefusedWithTheNumbers) {
  const TokenStore store = store_of(4);
  expect_refused([&] { Windows(store, 4, {}); }, "ids.npy: 4 tokens are too few, max_seq_len 4 needs at least 5");
  expect_refused([&] { Windows(store, 4, {}); }, "3 or less");
}

TEST_F(WindowsTest, WithoutShufflingPositionsWrapAround) {
  const TokenStore store = store_of(13);
  const Windows windows(store, 4, {});
  EXPECT_EQ(windows.index(0), 0);
  EXPECT_EQ(windows.index(2), 2);
  EXPECT_EQ(windows.index(3), 0);
  EXPECT_EQ(windows.index(3'000'000'000'001), 1);
}

TEST_F(WindowsTest, ShufflingVisitsEachWindowOnceAnEpoch) {
  const TokenStore store = store_of(1001);
  const Windows windows(store, 1, {.shuffle = true, .seed = 7});
  std::vector<std::vector<std::int64_t>> epochs(2);
  for (std::int64_t position = 0; position < 2000; ++position) {
    epochs[static_cast<std::size_t>(position / 1000)].push_back(windows.index(position));
  }
  for (const auto& epoch : epochs) EXPECT_EQ(std::set(epoch.begin(), epoch.end()).size(), 1000U);
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_FALSE(std::ranges::is_sorted(epochs[0]));
  const Windows again(store, 1, {.shuffle = true, .seed = 7});
  EXPECT_EQ(again.index(1234), epochs[1][234]);
  const Windows other(store, 1, {.shuffle = true, .seed = 8});
  std::vector<std::int64_t> other_epoch;
  for (std::int64_t position = 0; position < 1000; ++position) other_epoch.push_back(other.index(position));
  EXPECT_NE(other_epoch, epochs[0]);
}

TEST(Permuted, IsAPermutationOfEveryCount) {
  for (std::int64_t count = 1; count < 300; ++count) {
    std::set<std::int64_t> seen;
    for (std::int64_t i = 0; i < count; ++i) seen.insert(permuted(i, count, static_cast<std::uint64_t>(count)));
    ASSERT_EQ(seen.size(), static_cast<std::size_t>(count));
    ASSERT_EQ(*seen.rbegin(), count - 1);
  }
}

// A resumed run must find the order it had, also with a later build.
TEST(Permuted, StaysWhatItIs) {
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < 10; ++i) order.push_back(permuted(i, 10, 42));
  EXPECT_THAT(order, ElementsAre(4, 6, 1, 3, 0, 9, 5, 8, 7, 2));
}

TEST(Permuted, SpreadsNeighbours) {
  // Over many keys the first index lands in each tenth about equally often.
  std::vector<int> tenths(10);
  for (std::uint64_t key = 0; key < 10000; ++key) ++tenths[static_cast<std::size_t>(permuted(0, 1000, key) / 100)];
  for (const int count : tenths) EXPECT_NEAR(count, 1000, 150);
}

}  // namespace
}  // namespace spillway
