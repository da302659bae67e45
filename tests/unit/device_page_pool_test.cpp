#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "device/memory_info.h"
#include "device/page_pool.h"

namespace spillway {
namespace {

#ifdef __SANITIZE_THREAD__
constexpr bool thread_sanitizer = true;
#else
constexpr bool thread_sanitizer = false;
#endif

constexpr PageId page_of(std::int64_t number) { return static_cast<PageId>(number); }

// A pattern of its own for each page and generation.
void write_pattern(std::byte* data, std::int64_t bytes, std::uint64_t seed) {
  std::uint64_t value = seed * 0x9e3779b97f4a7c15ULL + 1;
  for (std::int64_t at = 0; at < bytes; at += 8) {
    value = value * 6364136223846793005ULL + 1442695040888963407ULL;
    std::memcpy(data + at, &value, 8);
  }
}

bool has_pattern(const std::byte* data, std::int64_t bytes, std::uint64_t seed) {
  std::uint64_t value = seed * 0x9e3779b97f4a7c15ULL + 1;
  for (std::int64_t at = 0; at < bytes; at += 8) {
    value = value * 6364136223846793005ULL + 1442695040888963407ULL;
    if (std::memcmp(data + at, &value, 8) != 0) return false;
  }
  return true;
}

TEST(DevicePagePool, PagesAreResidentAndZeroAtFirst) {
  const std::int64_t before = rss_bytes();
  const HostPagePool pool({.page_bytes = 2 * mib, .page_count = 24, .address_bytes = 64 * mib, .threads = 3});
  EXPECT_GE(rss_bytes() - before, pool.pool_bytes());
  for (std::int64_t page = 0; page < pool.page_count(); ++page) {
    const std::byte* const data = pool.page_data(page_of(page));
    EXPECT_TRUE(std::all_of(data, data + pool.page_bytes(), [](std::byte b) { return b == std::byte{0}; }));
  }
  EXPECT_LE(pool.huge_bytes(), pool.pool_bytes());
}

TEST(DevicePagePool, PagesThatCameHomeLieNextToEachOther) {
  constexpr std::int64_t page_bytes = 4096;
  constexpr std::int64_t pages = 6;
  HostPagePool pool({.page_bytes = page_bytes, .page_count = pages, .address_bytes = 2 * pages * page_bytes});
  for (std::int64_t p = 0; p < pages; ++p) {
    write_pattern(pool.page_data(page_of(p)), page_bytes, static_cast<std::uint64_t>(p));
    if (p != 2) pool.attach(page_of(p), (2 * pages - 1 - p) * page_bytes);
  }
  const std::int64_t attached = pool.moves();
  for (std::int64_t p = 0; p < pages; ++p) pool.send_home(std::vector{page_of(p)});
  EXPECT_EQ(pool.moves() - attached, pages - 1) << "one was there already";
  for (std::int64_t p = 0; p < pages; ++p) {
    const std::byte* const data = pool.home(page_of(0)) + p * page_bytes;
    EXPECT_EQ(pool.page_data(page_of(p)), data);
    EXPECT_TRUE(has_pattern(data, page_bytes, static_cast<std::uint64_t>(p)));
  }
}

// Whether the kernel gives any is its affair; what it gave is not broken up by moving.
TEST(DevicePagePool, HugePagesStayHugeWhereTheyAreAttached) {
  std::string allowed;
  std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), allowed);
  if (allowed.empty() || allowed.find("[never]") != std::string::npos) GTEST_SKIP() << "the kernel gives no huge pages";
  HostPagePool pool({.page_bytes = 2 * mib, .page_count = 24, .address_bytes = 64 * mib});
  const std::int64_t given = pool.huge_bytes();
  if (given == 0) GTEST_SKIP() << "the kernel has no huge pages free";
  for (std::int64_t page = 0; page < pool.page_count(); ++page)
    pool.attach(page_of(page), (31 - page) * pool.page_bytes());
  EXPECT_EQ(pool.huge_bytes(), given);
  const HostPagePool small({.page_bytes = 2 * mib, .page_count = 24, .address_bytes = 64 * mib, .huge_pages = false});
  EXPECT_EQ(small.huge_bytes(), 0);
}

class DevicePagePoolSizes : public testing::TestWithParam<std::int64_t> {};

TEST_P(DevicePagePoolSizes, RandomMovesKeepContentsAndResidentMemory) {
  const std::int64_t page_bytes = GetParam();
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const std::int64_t pages = 12;
  const std::int64_t places = 20;  // often taken by another page, which gives way
  HostPagePool pool({.page_bytes = page_bytes, .page_count = pages, .address_bytes = places * page_bytes});
  std::vector<std::uint64_t> pattern(pages);
  for (std::int64_t page = 0; page < pages; ++page) {
    pattern[static_cast<std::size_t>(page)] = random();
    write_pattern(pool.page_data(page_of(page)), page_bytes, pattern[static_cast<std::size_t>(page)]);
  }
  // A sanitizer's own memory grows with every address that is used for the first time.
  for (std::int64_t place = 0; place < places; ++place) {
    const std::int64_t page = place % pages;
    pool.attach(page_of(page), place * page_bytes);
    ASSERT_TRUE(has_pattern(pool.address(place * page_bytes), page_bytes, pattern[static_cast<std::size_t>(page)]));
  }
  const int moves = (page_bytes > mib ? 1500 : 6000) / (thread_sanitizer ? 10 : 1);
  const std::int64_t before = rss_bytes();
  for (int move = 0; move < moves; ++move) {
    const auto page = static_cast<std::size_t>(random() % pages);
    const auto place = static_cast<std::size_t>(random() % places);
    pool.attach(page_of(static_cast<std::int64_t>(page)), static_cast<std::int64_t>(place) * page_bytes);
    std::byte* const data = pool.address(static_cast<std::int64_t>(place) * page_bytes);
    ASSERT_EQ(pool.page_data(page_of(static_cast<std::int64_t>(page))), data);
    if (move % 8 == 0) {
      ASSERT_TRUE(has_pattern(data, page_bytes, pattern[page])) << "page " << page << ", move " << move;
      pattern[page] = random();
      write_pattern(data, page_bytes, pattern[page]);
    }
  }
  // ThreadSanitizer's own memory grows with every address that is used.
  if (!thread_sanitizer) {
    EXPECT_LT(std::abs(rss_bytes() - before), 4 * mib);
  }
  for (std::size_t page = 0; page < pattern.size(); ++page) {
    const std::byte* const data = pool.page_data(page_of(static_cast<std::int64_t>(page)));
    EXPECT_TRUE(has_pattern(data, page_bytes, pattern[page])) << "page " << page;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, DevicePagePoolSizes, testing::Values(4096, 64 * kib, 2 * mib));

TEST(DevicePagePool, AdjacentPagesAreOneFlatTensorInAnyOrder) {
  const std::int64_t page_bytes = 16 * kib;
  HostPagePool pool({.page_bytes = page_bytes, .page_count = 8, .address_bytes = 32 * page_bytes});
  const std::vector<int> order = {5, 0, 7, 2, 1, 6, 3, 4};
  for (std::size_t i = 0; i < order.size(); ++i) {
    pool.attach(page_of(order[i]), (8 + static_cast<std::int64_t>(i)) * page_bytes);
  }
  write_pattern(pool.address(8 * page_bytes), 8 * page_bytes, 3);
  EXPECT_TRUE(has_pattern(pool.address(8 * page_bytes), 8 * page_bytes, 3));
  std::byte copy[8];
  std::memcpy(copy, pool.address(10 * page_bytes), 8);
  EXPECT_EQ(std::memcmp(copy, pool.page_data(page_of(7)), 8), 0);
}

TEST(DevicePagePool, ThreadsAttachDifferentPagesAtOnce) {
  const std::int64_t page_bytes = 64 * kib;
  const int threads = 4;
  const std::int64_t pages_each = 6;
  const std::int64_t places_each = 16;
  HostPagePool pool({.page_bytes = page_bytes,
                     .page_count = threads * pages_each,
                     .address_bytes = threads * places_each * page_bytes});
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::vector<int> wrong(threads, 0);
  const auto shuffle_pages = [&](int thread) {
    std::mt19937_64 random(seed + static_cast<std::uint64_t>(thread));
    std::vector<std::int64_t> places(places_each);
    std::iota(places.begin(), places.end(), thread * places_each);
    std::vector<std::uint64_t> pattern(pages_each, 0);
    for (int round = 0; round < (thread_sanitizer ? 50 : 300); ++round) {
      // The first pages_each places are taken, the others empty: move each page to an empty one.
      for (std::size_t i = 0; i < pages_each; ++i) {
        const std::size_t to = pages_each + random() % (places_each - pages_each);
        const PageId page = page_of(thread * pages_each + static_cast<std::int64_t>(i));
        pool.attach(page, places[to] * page_bytes);
        std::swap(places[i], places[to]);
        std::byte* const data = pool.page_data(page);
        if (round > 0 && !has_pattern(data, page_bytes, pattern[i])) ++wrong[static_cast<std::size_t>(thread)];
        pattern[i] = random();
        write_pattern(data, page_bytes, pattern[i]);
        // Other mappings come and go meanwhile, as an allocator's do.
        std::vector<char> large(256 * kib);
        large[static_cast<std::size_t>(round)] = 1;
      }
    }
  };
  std::vector<std::jthread> running;
  for (int thread = 0; thread < threads; ++thread) running.emplace_back(shuffle_pages, thread);
  running.clear();
  EXPECT_EQ(wrong, std::vector<int>(threads, 0));
}

TEST(DevicePagePool, RunsOfPagesKeepTheirContentsWhereverTheyMove) {
  constexpr std::int64_t page_bytes = 4096;
  constexpr std::int64_t pages = 24;
  HostPagePool pool({.page_bytes = page_bytes, .page_count = pages, .address_bytes = 2 * pages * page_bytes});
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::vector<PageId> order;
  for (std::int64_t p = 0; p < pages; ++p) {
    order.push_back(page_of(p));
    write_pattern(pool.page_data(page_of(p)), page_bytes, static_cast<std::uint64_t>(p));
  }
  std::int64_t moved_pages = 0;
  for (int round = 0; round < 2000; ++round) {
    std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(random() % pages), order.end());
    if (round % 2 == 0) std::sort(order.begin(), order.end());
    if (round % 8 == 0) std::swap(order[random() % pages], order[random() % pages]);
    const std::span run(order.data(), 1 + random() % pages);
    const auto place = static_cast<std::int64_t>(random() % (2 * pages - run.size() + 1));
    std::vector<const std::byte*> before;
    for (std::int64_t p = 0; p < pages; ++p) before.push_back(pool.page_data(page_of(p)));
    random() % 4 == 0 ? pool.send_home(run) : pool.attach(run, place * page_bytes);
    for (std::int64_t p = 0; p < pages; ++p) {
      moved_pages += before[static_cast<std::size_t>(p)] != pool.page_data(page_of(p)) ? 1 : 0;
      ASSERT_TRUE(has_pattern(pool.page_data(page_of(p)), page_bytes, static_cast<std::uint64_t>(p)))
          << "page " << p << " after round " << round;
    }
  }
  EXPECT_LT(pool.moves(), moved_pages / 2) << "most move together";
}

// Which the kernel makes of pages that are told apart, here by what a child process is to inherit.
TEST(DevicePagePool, NeighboursOfTwoMappingsMoveOneByOne) {
  constexpr std::int64_t page_bytes = 4096;
  HostPagePool pool({.page_bytes = page_bytes, .page_count = 4, .address_bytes = 8 * page_bytes});
  const std::vector<PageId> pages{page_of(1), page_of(2)};
  for (const PageId page : pages) write_pattern(pool.page_data(page), page_bytes, static_cast<std::uint64_t>(page));
  ASSERT_EQ(madvise(pool.page_data(pages[1]), page_bytes, MADV_DONTFORK), 0);
  pool.attach(pages, page_bytes);
  EXPECT_EQ(pool.moves(), 2);
  pool.send_home(pages);
  EXPECT_EQ(pool.moves(), 4);
  for (const PageId page : pages) {
    EXPECT_EQ(pool.page_data(page), pool.home(page));
    EXPECT_TRUE(has_pattern(pool.page_data(page), page_bytes, static_cast<std::uint64_t>(page)));
  }
}

// An evicted tensor comes back at its address on other pages, while other threads take its old ones.
TEST(DevicePagePool, PagesLeftBehindGiveWayWhileOthersTakeThem) {
  const std::int64_t page_bytes = 16 * kib;
  const std::int64_t pages = 4;
  HostPagePool pool({.page_bytes = page_bytes, .page_count = 2 * pages, .address_bytes = 2 * pages * page_bytes});
  // Each round the two threads swap pages, but not addresses.
  for (std::int64_t round = 0; round < 400; ++round) {
    const auto take = [&](std::int64_t thread) {
      for (std::int64_t i = 0; i < pages; ++i) {
        const PageId page = page_of((thread + round) % 2 * pages + i);
        pool.attach(page, (thread * pages + i) * page_bytes);
        write_pattern(pool.page_data(page), page_bytes, static_cast<std::uint64_t>(round * 100 + thread * pages + i));
      }
    };
    {
      const std::jthread other(take, 1);
      take(0);
    }
    for (std::int64_t i = 0; i < 2 * pages; ++i) {
      ASSERT_TRUE(has_pattern(pool.address(i * page_bytes), page_bytes, static_cast<std::uint64_t>(round * 100 + i)))
          << "round " << round << ", place " << i;
    }
  }
}

TEST(DevicePagePool, FillsAPageAndNoOther) {
  HostPagePool pool({.page_bytes = 4096, .page_count = 3, .address_bytes = 8 * 4096});
  pool.attach(page_of(1), 4096);
  pool.fill(page_of(1), std::byte{0xff});
  const std::byte* const data = pool.address(4096);
  EXPECT_TRUE(std::all_of(data, data + 4096, [](std::byte b) { return b == std::byte{0xff}; }));
  EXPECT_EQ(pool.page_data(page_of(0))[4095], std::byte{0});
  EXPECT_EQ(pool.page_data(page_of(2))[0], std::byte{0});
}

// Whatever is read or written at the home of a page that has moved, the page keeps its contents, and may come back.
TEST(DevicePagePool, AnOpenHomeIsOtherMemory) {
  const std::int64_t page_bytes = 64 * kib;
  HostPagePool pool({.page_bytes = page_bytes, .page_count = 3, .address_bytes = 4 * page_bytes});
  std::byte* const home = pool.home(page_of(1));
  pool.attach(page_of(1), page_bytes);
  write_pattern(pool.address(page_bytes), page_bytes, 5);
  for (int round = 0; round < 2; ++round) {
    pool.open_home(page_of(1));
    EXPECT_TRUE(std::all_of(home, home + page_bytes, [](std::byte b) { return b == std::byte{0}; }));
    write_pattern(home, page_bytes, 6);
    EXPECT_TRUE(has_pattern(pool.address(page_bytes), page_bytes, 5));
    pool.close_home(page_of(1));
  }
  pool.attach(page_of(2), page_bytes);  // page 1 gives way, and goes home
  EXPECT_EQ(pool.page_data(page_of(1)), home);
  EXPECT_TRUE(has_pattern(home, page_bytes, 5));
}

TEST(DevicePagePool, RefusesWhatTheMachineCannotHold) {
  const std::int64_t pages = available_memory_bytes() / gib + 2;
  try {
    const HostPagePool pool({.page_bytes = gib, .page_count = pages, .address_bytes = gib});
    FAIL() << "a pool of " << pages << " GiB";
  } catch (const DoesNotFit& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("smaller --memory"));
  }
}

TEST(DevicePagePool, RefusesMorePagesThanTheKernelHasMappings) {
  try {
    const HostPagePool pool({.page_bytes = 4096, .page_count = INT32_MAX, .address_bytes = 4096});
    FAIL() << "8 TiB of small pages";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("sysctl -w vm.max_map_count="));
  }
}

TEST(DevicePagePool, CountsTheMappingsOfThePoolsBesideIt) {
  EXPECT_THROW(HostPagePool({.page_bytes = 4096, .page_count = 1, .address_bytes = 4096, .other_pages = INT32_MAX}),
               UserError);
  const HostPagePool fits({.page_bytes = 4096, .page_count = 1, .address_bytes = 4096, .other_pages = 1});
}

TEST(DevicePagePoolDeathTest, WrongPlacesAndEmptiedOnesAreNotAccepted) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  HostPagePool pool({.page_bytes = 4096, .page_count = 2, .address_bytes = 8 * 4096});
  pool.attach(page_of(0), 0);
  pool.attach(page_of(0), 0);
  EXPECT_DEATH(pool.attach(page_of(1), 100), "offset 100");
  EXPECT_DEATH(pool.attach(page_of(2), 0), "page 2 of 2");
  EXPECT_DEATH(pool.attach(std::vector{page_of(0), page_of(1)}, pool.address_bytes() - 4096), "2 pages at place");
  pool.attach(page_of(0), 4096);
  EXPECT_DEATH(*const_cast<volatile std::byte*>(pool.address(0)) = std::byte{1}, "");
  EXPECT_DEATH(pool.open_home(page_of(1)), "page 1 is at home");
  pool.open_home(page_of(0));
  pool.close_home(page_of(0));
  EXPECT_DEATH(*const_cast<volatile std::byte*>(pool.home(page_of(0))) = std::byte{1}, "");
}

}  // namespace
}  // namespace spillway
