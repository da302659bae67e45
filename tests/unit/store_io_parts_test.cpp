// The bookkeeping of requests that the I/O engines share, with the kernel's part played here.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "store/io_parts.h"

namespace spillway {
namespace {

// The kernel's part is played here: it transfers less than asked, interrupts, and fails.
void drive_parts(std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const int depth = 1 + static_cast<int>(random() % 6);
  IoParts parts(depth, 4096 * (1 + static_cast<std::int64_t>(random() % 4)));
  const std::int64_t file_bytes = 300000;
  struct Expected {
    IoRequest request;
    bool direct;
    int error = 0;
    int answers = 0;
  };
  std::vector<Expected> expected;
  std::vector<std::byte> memory(400000);
  std::vector<int> written(memory.size(), 0);  // how often each byte of memory has been transferred
  std::vector<int> waiting;
  std::vector<IoCompletion> done;
  std::set<std::int64_t> failed;  // parts of reads, by where they end in the file
  std::int64_t next_byte = 0;
  while (next_byte < 380000 || done.size() < expected.size()) {
    if (next_byte < 380000 && random() % 3 == 0) {
      Expected e;
      e.direct = random() % 2 == 0;
      e.request.kind = random() % 2 == 0 ? IoRequest::Kind::read : IoRequest::Kind::write;
      e.request.offset_bytes = round_up(next_byte, 4096);
      e.request.bytes = e.direct ? 4096 * (1 + static_cast<std::int64_t>(random() % 8))
                                 : 1 + static_cast<std::int64_t>(random() % 20000);
      e.request.bytes = std::min<std::int64_t>(e.request.bytes, std::ssize(memory) - e.request.offset_bytes);
      e.request.bytes = e.direct ? e.request.bytes / 4096 * 4096 : e.request.bytes;
      if (e.request.bytes == 0) break;
      e.request.data = memory.data() + e.request.offset_bytes;
      e.request.tag = expected.size();
      next_byte = e.request.offset_bytes + e.request.bytes;
      parts.add(e.request, e.direct);
      expected.push_back(e);
    }
    for (int part = parts.start(); part >= 0; part = parts.start()) waiting.push_back(part);
    ASSERT_LE(waiting.size(), static_cast<std::size_t>(depth));
    ASSERT_EQ(parts.under_way(), static_cast<int>(waiting.size()));
    if (waiting.empty()) continue;
    std::swap(waiting[random() % waiting.size()], waiting.back());
    const int part = waiting.back();
    waiting.pop_back();
    const IoParts::Transfer transfer = parts.transfer(part);
    auto owner = std::find_if(expected.begin(), expected.end(), [&](const Expected& e) {
      return transfer.offset_bytes >= e.request.offset_bytes &&
             transfer.offset_bytes < e.request.offset_bytes + e.request.bytes;
    });
    ASSERT_NE(owner, expected.end());
    ASSERT_EQ(transfer.data, memory.data() + transfer.offset_bytes);
    if (owner->direct) {
      ASSERT_EQ(transfer.offset_bytes % 4096, 0);
      ASSERT_EQ(transfer.bytes % 4096, 0);
    }
    const std::uint64_t dice = random() % 20;
    if (dice == 0) {
      parts.finish(part, random() % 2 == 0 ? -EINTR : -EAGAIN, done);
      continue;
    }
    const bool read = owner->request.kind == IoRequest::Kind::read;
    const std::int64_t end = transfer.offset_bytes + transfer.bytes;
    const bool again = failed.contains(end);
    if ((dice == 1 || (again && dice > 13)) && owner->request.tag % 5 == 0) {
      const int error = owner->error == 0 ? EIO : ENOSPC;  // the first one is told
      if (read) failed.insert(end);
      if (owner->error == 0 && (!read || again)) owner->error = error;
      parts.finish(part, -error, done);
      continue;
    }
    std::int64_t most = transfer.bytes;
    if (read) most = std::clamp<std::int64_t>(file_bytes - transfer.offset_bytes, 0, most);
    std::int64_t result = most;
    if (dice < 10 && most > 1) result = 1 + static_cast<std::int64_t>(random()) % most;
    result = std::clamp<std::int64_t>(result, std::min<std::int64_t>(1, most), most);
    // Direct transfers fall short by whole sectors, except at the end of the file.
    if (owner->direct && result < most) result = std::min(most, std::max<std::int64_t>(4096, result / 512 * 512));
    for (std::int64_t i = 0; i < result; ++i) ++written[static_cast<std::size_t>(transfer.offset_bytes + i)];
    parts.finish(part, result, done);
  }
  ASSERT_EQ(done.size(), expected.size());
  for (const IoCompletion& completion : done) {
    const Expected& e = expected[completion.tag];
    ASSERT_EQ(completion.wanted_bytes, e.request.bytes) << "request " << completion.tag;
    ASSERT_EQ(completion.error, e.error) << "request " << completion.tag;
    if (e.error != 0) continue;
    std::int64_t want = e.request.bytes;
    if (e.request.kind == IoRequest::Kind::read) {
      want = std::clamp<std::int64_t>(file_bytes - e.request.offset_bytes, 0, want);
    }
    ASSERT_EQ(completion.bytes, want) << "request " << completion.tag;
    for (std::int64_t i = 0; i < want; ++i) {
      ASSERT_GE(written[static_cast<std::size_t>(e.request.offset_bytes + i)], 1);
    }
  }
}

TEST(StoreIoParts, ContinuesShortAndInterruptedTransfersToTheEnd) {
  const std::uint64_t first = std::random_device{}();
  for (std::uint64_t seed = first; seed < first + 100 && !testing::Test::HasFatalFailure(); ++seed) drive_parts(seed);
}

TEST(StoreIoParts, AWriteThatGainsNothingFails) {
  IoParts parts(2, 4096);
  std::vector<std::byte> memory(8192);
  parts.add({IoRequest::Kind::write, 0, 0, memory.data(), 8192, 4}, false);
  std::vector<IoCompletion> done;
  const int part = parts.start();
  parts.finish(part, 0, done);
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].error, EIO);
  EXPECT_EQ(parts.start(), -1);
}

// Whatever came first: with four under way, two of them are of each kind once two have ended.
TEST(StoreIoParts, ReadsAndWritesHaveHalfOfTheDepthEach) {
  for (const auto& [before, after] : {std::pair{IoRequest::Kind::write, IoRequest::Kind::read},
                                      std::pair{IoRequest::Kind::read, IoRequest::Kind::write}}) {
    IoParts parts(4, 4096);
    std::vector<std::byte> memory(16 * 4096);
    std::vector<IoCompletion> done;
    std::vector<int> under_way;
    const auto start = [&] {
      for (int part = parts.start(); part >= 0; part = parts.start()) under_way.push_back(part);
    };
    parts.add({before, 0, 0, memory.data(), 16 * 4096, 0}, true);
    parts.add({before, 0, 16 * 4096, memory.data(), 16 * 4096, 1}, true);
    start();
    parts.add({after, 0, 32 * 4096, memory.data(), 4 * 4096, 2}, true);
    for (int finished = 0; finished < 4; ++finished) {
      const int part = under_way.front();
      under_way.erase(under_way.begin());
      parts.finish(part, 4096, done);
      start();
      const auto of_after =
          std::count_if(under_way.begin(), under_way.end(), [&](int one) { return parts.transfer(one).kind == after; });
      EXPECT_EQ(of_after, std::min(finished + 1, 2)) << finished;
    }
    EXPECT_EQ(parts.under_way(), 4);
  }
}

TEST(StoreIoParts, OneAtATimeReadsAndWritesTakeTurns) {
  IoParts parts(1, 4096);
  std::vector<std::byte> memory(8 * 4096);
  std::vector<IoCompletion> done;
  for (const auto kind : {IoRequest::Kind::write, IoRequest::Kind::read})
    parts.add({kind, 0, 0, memory.data(), 4 * 4096, 0}, true);
  int reads = 0;
  for (int started = 1; started <= 8; ++started) {
    const int part = parts.start();
    reads += parts.transfer(part).kind == IoRequest::Kind::read ? 1 : 0;
    EXPECT_EQ(reads, (started + 1) / 2);
    parts.finish(part, 4096, done);
  }
  EXPECT_EQ(done.size(), 2U);
}

// The end of a request of two parts, of which each fails so often before it is carried out.
IoCompletion end_of(IoRequest::Kind kind, std::array<int, 2> failures) {
  IoParts parts(1, 4096);
  std::vector<std::byte> memory(8192);
  parts.add({kind, 0, 0, memory.data(), 8192, 4}, false);
  std::vector<IoCompletion> done;
  for (int part = parts.start(); part >= 0; part = parts.start()) {
    const IoParts::Transfer transfer = parts.transfer(part);
    const bool fails = failures[transfer.offset_bytes == 0 ? 0 : 1]-- > 0;
    parts.finish(part, fails ? -EIO : transfer.bytes, done);
  }
  EXPECT_EQ(done.size(), 1U);
  return done.at(0);
}

TEST(StoreIoParts, EachPartOfAReadIsTriedOnceMoreAndNoWrite) {
  const IoCompletion twice = end_of(IoRequest::Kind::read, {1, 1});
  EXPECT_EQ(twice.error, 0);
  EXPECT_EQ(twice.bytes, 8192);
  for (const std::array<int, 2> failures : {std::array{2, 0}, std::array{0, 2}, std::array{1, 2}}) {
    EXPECT_EQ(end_of(IoRequest::Kind::read, failures).error, EIO);
  }
  for (const std::array<int, 2> failures : {std::array{1, 0}, std::array{0, 1}}) {
    EXPECT_EQ(end_of(IoRequest::Kind::write, failures).error, EIO);
  }
}

TEST(StoreIoParts, AFailedReadGoesOnWhereItWas) {
  IoParts parts(1, 8192);
  std::vector<std::byte> memory(8192);
  parts.add({IoRequest::Kind::read, 0, 0, memory.data(), 8192, 4}, false);
  std::vector<IoCompletion> done;
  parts.finish(parts.start(), 5000, done);
  parts.finish(parts.start(), -EIO, done);
  int part = parts.start();
  EXPECT_EQ(parts.transfer(part).offset_bytes, 5000);
  parts.finish(part, 1000, done);
  part = parts.start();
  EXPECT_EQ(parts.transfer(part).offset_bytes, 6000);
  parts.finish(part, -EIO, done);  // its second failure, wherever the first one was
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].error, EIO);
  EXPECT_EQ(done[0].bytes, 6000);
}

TEST(StoreIoParts, ATransferThatIsInterruptedForEverFails) {
  IoParts parts(1, 8192);
  std::vector<std::byte> memory(8192);
  parts.add({IoRequest::Kind::write, 0, 0, memory.data(), 8192, 4}, false);
  std::vector<IoCompletion> done;
  const auto interrupt = [&] { parts.finish(parts.start(), -EAGAIN, done); };
  for (int i = 1; i < most_interruptions; ++i) interrupt();
  parts.finish(parts.start(), 5000, done);  // it has gained something, and begins to count anew
  for (int i = 1; i < most_interruptions; ++i) interrupt();
  ASSERT_TRUE(done.empty());
  interrupt();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].error, EAGAIN);
  EXPECT_EQ(done[0].bytes, 5000);
}

}  // namespace
}  // namespace spillway
