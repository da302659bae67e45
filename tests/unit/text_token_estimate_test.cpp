// What a part of the data tells of all of it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "scratch_folder.h"
#include "text/token_estimate.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;
using ::testing::Property;
using ::testing::Throws;

// An id for each run of letters and for each other byte, as many as it was asked for.
class RunEncoder : public Encoder {
 public:
  std::vector<std::uint32_t> encode(std::string_view text) const override {
    std::vector<std::uint32_t> ids;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const bool goes_on = i > 0 && text[i] != ' ' && text[i - 1] != ' ';
      if (!goes_on) ids.push_back(static_cast<unsigned char>(text[i]));
    }
    bytes_ += static_cast<std::int64_t>(text.size());
    return ids;
  }
  std::optional<std::uint32_t> end_token() const override { return 256; }
  std::int64_t bytes() const { return bytes_; }

 private:
  mutable std::int64_t bytes_ = 0;
};

std::string words(std::int64_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::string text;
  while (std::ssize(text) < bytes) {
    text.append(1 + random() % 9, 'a');
    text += ' ';
  }
  return text;
}

class TokenEstimates : public ::testing::Test {
 protected:
  std::int64_t built(const std::vector<std::filesystem::path>& files) const {
    return TokenStore::build(files, encoder_, 300, folder_ / "ids").count();
  }
  std::string lines(int documents, unsigned seed) const {
    std::string text;
    std::mt19937 random(seed);
    for (int i = 0; i < documents; ++i)
      text += fmt::format("{{\"id\": {}, \"text\": \"{}\"}}\n", i, words(random() % 4000, seed + i));
    return text;
  }

  std::filesystem::path npy() const {
    std::string text("\x93NUMPY\x01\x00\x3b\x00", 10);
    text += "{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }\n";
    text.resize(10 + 0x3b - 1, ' ');
    text += '\n';
    text += std::string("\x01\x00\x02\x00\x03\x00", 6);
    return folder_.file("ids.npy", text);
  }

  const ScratchFolder folder_;
  const RunEncoder encoder_;
};

TEST_F(TokenEstimates, ShortDataAreCountedToTheLastId) {
  const std::vector<std::filesystem::path> files{folder_.file("tiny.txt", "a"),
                                                 folder_.file("a.txt", words(900'000, 1)),
                                                 folder_.file("b.jsonl", lines(40, 2)), npy()};
  const TokenEstimate estimate = estimate_ids(files, encoder_);
  EXPECT_EQ(estimate.ids, built(files));
  EXPECT_TRUE(estimate.exact);
}

TEST_F(TokenEstimates, LongTextsAreToldFromTheirBeginnings) {
  for (const auto& [name, text] : {std::pair{"a.txt", words(8 * mib, 3)}, std::pair{"b.jsonl", lines(4000, 4)}}) {
    const std::vector<std::filesystem::path> files{folder_.file(name, text)};
    const auto all = static_cast<double>(built(files));
    const std::int64_t before = encoder_.bytes();
    const TokenEstimate estimate = estimate_ids(files, encoder_, mib);
    EXPECT_FALSE(estimate.exact);
    EXPECT_NEAR(static_cast<double>(estimate.ids), all, 0.02 * all) << name;
    EXPECT_LT(encoder_.bytes() - before, 2 * mib) << name;
  }
}

TEST_F(TokenEstimates, ManyFilesCostNoMoreThanOne) {
  std::vector<std::filesystem::path> files;
  for (unsigned i = 0; i < 60; ++i) files.push_back(folder_.file(fmt::format("{}.txt", i), words(60'000, i)));
  const auto all = static_cast<double>(built(files));
  const std::int64_t before = encoder_.bytes();
  const TokenEstimate estimate = estimate_ids(files, encoder_, mib);
  EXPECT_FALSE(estimate.exact);
  EXPECT_NEAR(static_cast<double>(estimate.ids), all, 0.02 * all);
  EXPECT_LT(encoder_.bytes() - before, 2 * mib);
}

TEST_F(TokenEstimates, RefusesWhatBuildRefuses) {
  const auto refused = [&](const std::filesystem::path& file, const std::string& what) {
    const std::vector<std::filesystem::path> files{file};
    EXPECT_THAT([&] { estimate_ids(files, encoder_); }, Throws<UserError>(Property(&UserError::what, HasSubstr(what))));
  };
  refused(folder_ / "none.txt", "none.txt");
  refused(folder_.file("empty.txt", ""), "is empty");
  refused(folder_.file("blank.jsonl", "\n\n"), "has no documents");
  refused(folder_.file("data.csv", "a,b"), "data files end in");
}

}  // namespace
}  // namespace spillway
