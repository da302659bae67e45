// Readers of training data: text, JSON lines, .npy; and the small files written atomically.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "formats/atomic_file.h"
#include "formats/jsonl.h"
#include "formats/npy.h"
#include "formats/text_file.h"
#include "formats/utf8.h"
#include "scratch_folder.h"

namespace spillway {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Property;
using ::testing::Throws;

template <typename Call>
void expect_user_error(const Call& call, const std::string& what) {
  EXPECT_THAT(call, Throws<UserError>(Property(&UserError::what, HasSubstr(what)))) << what;
}

std::pair<std::string, std::int64_t> repaired(std::string_view text, std::size_t block_bytes) {
  Utf8Repair repair;
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += block_bytes) repair.feed(text.substr(at, block_bytes), out);
  repair.end(out);
  return {out, repair.replaced()};
}

// The values are those of Python's bytes.decode("utf-8", "replace").
TEST(Utf8, RepairsAsOtherToolsDo) {
  const std::string r = "\xEF\xBF\xBD";
  const std::tuple<std::string, std::string, int> cases[] = {
      {"plain", "plain", 0},
      {"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", 0},
      {"a\xFF"
       "b",
       "a" + r + "b", 1},
      {"\x80\x80", r + r, 2},
      {"\xC0\xAF", r + r, 2},
      {"\xE2\x82", r, 1},
      {"\xE2\x82z", r + "z", 1},
      {"\xF0\x9F\x98", r, 1},
      {"\xF0\x9F\xE2\x82\xAC", r + "\xE2\x82\xAC", 1},
      {"\xED\xA0\x80", r + r + r, 3},
      {"\xF4\x90\x80\x80", r + r + r + r, 4},
      {"\xE0\x80\x80", r + r + r, 3},
  };
  for (const auto& [text, expected, count] : cases) {
    for (const std::size_t block_bytes : {1U, 2U, 3U, 100U}) {
      EXPECT_EQ(repaired(text, block_bytes), std::pair(expected, std::int64_t{count})) << testing::PrintToString(text);
    }
  }
}

TEST(TextFile, BlocksMakeTheWhole) {
  const ScratchFolder folder;
  const std::string text =
      "Gr\xC3\xBC\xC3\x9F"
      "e, \xF0\x9F\x98\x80!\n\xFF";
  for (const std::int64_t block_bytes : {1, 2, 3, 5, 64}) {
    TextFileReader reader(folder.file("a.txt", text), block_bytes);
    std::string all;
    while (reader.append_next(all)) {
    }
    EXPECT_EQ(all, text.substr(0, text.size() - 1) + "\xEF\xBF\xBD");
    EXPECT_EQ(reader.replaced(), 1);
  }
}

std::vector<std::string> texts_of(JsonlReader& reader) {
  std::vector<std::string> texts;
  for (std::string text; reader.next(text);) texts.push_back(text);
  return texts;
}

TEST(Jsonl, GivesTheTextOfEachLine) {
  const ScratchFolder folder;
  JsonlReader reader(folder.file("a.jsonl",
                                 "{\"text\": \"one\\n\\u00e9\"}\r\n\n  \n{\"meta\": {\"text\": 7, \"x\": [1, {}]}, "
                                 "\"text\": \"two\", \"n\": 1e3}\n{\"text\": \"\"}\n{\"text\": \"last\xFF\"}"));
  EXPECT_THAT(texts_of(reader), ElementsAre("one\n\xC3\xA9", "two", "", "last\xEF\xBF\xBD"));
  EXPECT_EQ(reader.line(), 6);
  EXPECT_EQ(reader.replaced(), 1);
}

TEST(Jsonl, LinesMayBeLongerThanABlock) {
  const ScratchFolder folder;
  const std::string big(3 * static_cast<std::size_t>(mib), 'x');
  JsonlReader reader(folder.file("a.jsonl", "{\"text\":\"" + big + "\"}\n{\"text\":\"b\"}\n"));
  EXPECT_THAT(texts_of(reader), ElementsAre(big, "b"));
}

TEST(Jsonl, TheLimitHoldsForRepairedText) {
  const ScratchFolder folder;
  const std::string line = "{\"text\": \"" + std::string(20, '\xFF') + "\"}";
  JsonlReader enough(folder.file("a.jsonl", line), 72);
  EXPECT_EQ(texts_of(enough).front().size(), 60U);
  EXPECT_EQ(enough.replaced(), 20);
  JsonlReader less(folder.file("a.jsonl", line), 71);
  expect_user_error([&] { texts_of(less); }, "longer than the 71 B");
  JsonlReader cut(folder.file("b.jsonl", "{\"text\": \"a\"}\n\xE2\x82"));
  expect_user_error([&] { texts_of(cut); }, "b.jsonl, line 2");
}

TEST(Jsonl, LoneSurrogatesAreReplaced) {
  const JsonlText text =
      parse_jsonl_line(R"({"text": "\ud83d\ude00 \ud83d \ude00 \\ud83d\ud83d\ud83d\ude00"})", "f", 1);
  EXPECT_EQ(text.text, "\xF0\x9F\x98\x80 \xEF\xBF\xBD \xEF\xBF\xBD \\ud83d\xEF\xBF\xBD\xF0\x9F\x98\x80");
  EXPECT_EQ(text.replaced, 3);
}

TEST(Jsonl, NamesFileAndLine) {
  const ScratchFolder folder;
  for (const char* line :
       {"[]", "7", "\"text\"", "{}", "{\"text\": 7}", "{\"text\": null}", "{\"text\": {\"text\": \"a\"}}",
        "{\"text\": [\"a\"]}", "{\"text\": \"a\"", "nonsense", "{\"text\": \"a\"} {\"text\": \"b\"}"}) {
    JsonlReader reader(folder.file("a.jsonl", std::string("{\"text\": \"ok\"}\n") + line));
    expect_user_error([&] { texts_of(reader); }, "a.jsonl, line 2");
  }
  JsonlReader reader(folder.file("a.jsonl", "{\"text\": \"0123456789\"}"), 8);
  expect_user_error([&] { texts_of(reader); }, "line 1: longer than");
}

std::string npy_text(int version, const std::string& header, std::string_view data) {
  std::string text = "\x93NUMPY";
  text += static_cast<char>(version);
  text += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) text += static_cast<char>(header.size() >> (8 * i));
  return text + header + std::string(data);
}

TEST(Npy, ReadsTokenIds) {
  const ScratchFolder folder;
  const std::uint16_t narrow[] = {1, 2, 65535};
  const std::uint32_t wide[] = {70000, 0, 3};
  const std::string_view narrow_bytes(reinterpret_cast<const char*>(narrow), sizeof narrow);
  const std::string_view wide_bytes(reinterpret_cast<const char*>(wide), sizeof wide);
  for (const int version : {1, 2, 3}) {
    const std::string file =
        npy_text(version, "{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }   \n", narrow_bytes);
    const NpyReader reader(folder.file("a.npy", file));
    std::vector<std::uint32_t> ids(2);
    reader.read(1, ids);
    EXPECT_EQ(reader.count(), 3);
    EXPECT_THAT(ids, ElementsAre(2, 65535));
  }
  const NpyReader reader(
      folder.file("b.npy", npy_text(1, "{'shape':(3L,),'fortran_order':True,'descr':\"<u4\"}", wide_bytes)));
  std::vector<std::uint32_t> ids(3);
  reader.read(0, ids);
  EXPECT_THAT(ids, ElementsAre(70000, 0, 3));
}

TEST(Npy, RefusesTheRestByName) {
  const auto refused = [](const std::string& header, const std::string& what) {
    const std::string file = npy_text(1, header, "123456");
    const auto call = [&] {
      parse_npy_header(std::as_bytes(std::span(file)), static_cast<std::int64_t>(file.size()), "a.npy");
    };
    expect_user_error(call, what);
    expect_user_error(call, "a.npy");
  };
  refused("{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }", "'<i8'");
  refused("{'descr': '>u2', 'fortran_order': False, 'shape': (3,), }", "'>u2'");
  refused("{'descr': [('a', '<u2')], 'fortran_order': False, 'shape': (3,), }", "fields");
  refused("{'descr': '<u2', 'fortran_order': False, 'shape': (3, 1), }", "2 dimensions");
  refused("{'descr': '<u2', 'fortran_order': False, 'shape': (), }", "0 dimensions");
  refused("{'descr': '<u2', 'fortran_order': False, 'shape': (4,), }", "truncated");
  refused("{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }", "6 bytes follow");
  refused("{'descr': '<u2', 'fortran_order': False, 'shape': (9223372036854775807,), }", "truncated");
  for (const char* header : {"", "{", "{'descr': '<u2'}", "{'descr': '<u2', 'fortran_order': 0, 'shape': (3,)}",
                             "{'descr': '<u2', 'fortran_order': False, 'shape': (-3,)}",
                             "{'descr': '<u2', 'fortran_order': False, 'shape': (3,)} x",
                             "{'descr': '<u2', 'descr': '<u2', 'fortran_order': False, 'shape': (3,)}"}) {
    refused(header, "damaged");
  }
}

TEST(Npy, RefusesTruncationAnywhere) {
  const ScratchFolder folder;
  const std::string file = npy_text(2, "{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }", "123456");
  EXPECT_NO_THROW(NpyReader(folder.file("a.npy", file)));
  for (std::size_t bytes = 0; bytes < file.size(); ++bytes) {
    EXPECT_THROW(NpyReader(folder.file("a.npy", file.substr(0, bytes))), UserError) << bytes;
  }
  std::string lie = file;
  lie[11] = '\x7F';
  expect_user_error([&] { NpyReader(folder.file("a.npy", lie)); }, "claims");
}

TEST(AtomicFile, ReplacesWholeFiles) {
  const ScratchFolder folder;
  write_file_atomically(folder / "a.json", "first");
  write_file_atomically(folder / "a.json", "2nd");
  EXPECT_EQ(folder.text_of("a.json"), "2nd");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  EXPECT_THAT(
      [&] { write_file_atomically(folder / "missing" / "a.json", "x"); },
      Throws<DeviceError>(Property(&DeviceError::what, AllOf(HasSubstr("missing"), HasSubstr("No such file")))));
}

TEST(AtomicFile, AFullDiskLeavesTheOldFile) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP();
  const ScratchFolder folder;
  folder.file("a.json", "old");
  std::filesystem::create_symlink("/dev/full", temporary_name(folder / "a.json"));
  EXPECT_THROW(write_file_atomically(folder / "a.json", "new"), DeviceError);
  EXPECT_EQ(folder.text_of("a.json"), "old");
}

}  // namespace
}  // namespace spillway
