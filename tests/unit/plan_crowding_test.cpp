#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "plan/crowding.h"

namespace spillway {
namespace {

constexpr std::uint64_t crowding_seed = 5200;

// What the tree says is what counting says, whatever was taken out before: room that is never, always and sometimes
// enough, segments that are no power of two, empty ranges.
TEST(Crowding, IsThatOfCountingEachSegment) {
  for (std::uint64_t seed = crowding_seed; seed < crowding_seed + 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t end) { return static_cast<std::int64_t>(random() % end); };
    std::vector<std::int64_t> alive(static_cast<std::size_t>(1 + below(70)));
    for (std::int64_t& pages : alive) pages = below(100);
    const std::int64_t room = seed % 5 == 0 ? -1000 : below(100);
    Crowding crowding(alive, room);
    for (int turn = 0; turn < 200; ++turn) {
      auto begin = static_cast<std::size_t>(below(alive.size() + 1));
      auto end = static_cast<std::size_t>(below(alive.size() + 1));
      if (begin > end) std::swap(begin, end);
      const auto from = alive.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto to = alive.begin() + static_cast<std::ptrdiff_t>(end);
      ASSERT_EQ(crowding.crowded(begin, end), std::count_if(from, to, [&](std::int64_t p) { return p > room; }));
      if (turn % 3 > 0) continue;
      const std::int64_t pages = below(30);
      crowding.relieve(begin, end, pages);
      for (auto at = from; at != to; ++at) *at -= pages;
    }
  }
}

}  // namespace
}  // namespace spillway
