#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "base/page_places.h"

namespace spillway {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<PageId> pages_of(const std::vector<int>& numbers) {
  std::vector<PageId> pages;
  for (const int number : numbers) pages.push_back(static_cast<PageId>(number));
  return pages;
}

class BasePagePlaces : public testing::Test {
 protected:
  auto attach(const std::vector<int>& pages, std::int64_t place) { return places_.attach(pages_of(pages), place); }
  auto send_home(const std::vector<int>& pages) { return places_.send_home(pages_of(pages)); }

  PagePlaces places_{8, 16};  // so page p is at home at 16 + p
};

TEST_F(BasePagePlaces, NeighboursMoveTogether) {
  EXPECT_THAT(attach({2, 3, 4}, 5), ElementsAre(PageMove{18, 5, 3}));
  EXPECT_THAT(attach({2, 3, 4}, 5), IsEmpty());
  EXPECT_THAT(send_home({3, 4}), ElementsAre(PageMove{6, 19, 2}));
  EXPECT_THAT(attach({2, 3, 4}, 5), ElementsAre(PageMove{19, 6, 2}));
}

TEST_F(BasePagePlaces, OthersDoNot) {
  EXPECT_THAT(attach({4, 2, 3}, 0), ElementsAre(PageMove{20, 0, 1}, PageMove{18, 1, 2}));
  EXPECT_THAT(send_home({4, 2, 3}), ElementsAre(PageMove{0, 20, 1}, PageMove{1, 18, 2}));
  attach({0, 1}, 8);
  EXPECT_THAT(attach({1, 0}, 3), ElementsAre(PageMove{9, 3, 1}, PageMove{8, 4, 1}));
  attach({6}, 10);
  EXPECT_THAT(send_home({6, 7}), ElementsAre(PageMove{10, 22, 1})) << "one is there already";
}

TEST_F(BasePagePlaces, WhatWasLeftBehindGoesHomeFirst) {
  attach({0, 1, 2}, 0);
  EXPECT_THAT(attach({4, 5}, 1), ElementsAre(PageMove{1, 17, 2}, PageMove{20, 1, 2}));
  EXPECT_EQ(places_.place_of(PageId{0}), 0);
  EXPECT_EQ(places_.place_of(PageId{2}), places_.home_of(PageId{2}));
  EXPECT_THAT(attach({5, 4}, 1), ElementsAre(PageMove{1, 20, 2}, PageMove{21, 1, 1}, PageMove{20, 2, 1}));
}

// As the kernel sees it: moves go to where no page is, and what moves together came from the same neighbours at home.
TEST(BasePagePlacesAtRandom, MovesGoToPlacesThatAreFree) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  constexpr int page_count = 12;
  constexpr int place_count = 20;
  PagePlaces places(page_count, place_count);
  std::vector<int> page_at(place_count + page_count, -1);
  std::iota(page_at.begin() + place_count, page_at.end(), 0);
  std::vector<int> order(page_count);
  std::iota(order.begin(), order.end(), 0);
  std::int64_t together = 0;
  for (int round = 0; round < 20000 && !testing::Test::HasFailure(); ++round) {
    if (round % 3 == 0) std::shuffle(order.begin(), order.end(), random);
    if (round % 3 == 1) std::sort(order.begin(), order.end());
    const std::size_t count = 1 + random() % 6;
    const auto first = order.begin() + static_cast<int>(random() % (page_count - count + 1));
    const std::vector<PageId> pages = pages_of({first, first + static_cast<int>(count)});
    const auto place = static_cast<std::int64_t>(random() % (place_count - count + 1));
    const bool home = random() % 4 == 0;
    for (const PageMove& move : home ? places.send_home(pages) : places.attach(pages, place)) {
      EXPECT_TRUE(move.from + move.pages <= move.to || move.to + move.pages <= move.from);
      const auto from = static_cast<std::size_t>(move.from);
      const auto to = static_cast<std::size_t>(move.to);
      const int first_page = page_at[from];
      ASSERT_GE(first_page, 0);
      for (int i = 0; i < move.pages; ++i) {
        EXPECT_EQ(page_at[to + static_cast<std::size_t>(i)], -1);
        page_at[to + static_cast<std::size_t>(i)] = std::exchange(page_at[from + static_cast<std::size_t>(i)], -1);
        EXPECT_EQ(page_at[to + static_cast<std::size_t>(i)], first_page + i);
      }
      together += move.pages - 1;
    }
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(places.place_of(pages[i]), home ? places.home_of(pages[i]) : place + static_cast<std::int64_t>(i));
    }
    for (int page = 0; page < page_count; ++page) {
      EXPECT_EQ(page_at[static_cast<std::size_t>(places.place_of(static_cast<PageId>(page)))], page);
    }
  }
  EXPECT_GT(together, 0);
}

}  // namespace
}  // namespace spillway
