// Where the pages of a pool lie, and which have to be moved so that those of a stay lie next to each other: the
// bookkeeping of a pool (device/page_pool.h), by itself, so that the simulator counts the same moves.
//
// A place is as large as a page. Those for stays are numbered from 0; behind them each page has one of its own, its
// home, in the order of their numbers. Pages whose numbers follow each other, that lie in a row and go to places in a
// row, move together: as a rule they are one mapping of the kernel, and it moves up to 2 MiB at the cost of one page.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace spillway {

// A page of a memory's pool, by number from 0. Given in full where plans are (the plan names pages, the pool owns
// them).
enum class PageId : std::int32_t;

// `pages` places from `from` on go to those from `to` on. The two do not overlap.
struct PageMove {
  std::int64_t from = 0;
  std::int64_t to = 0;
  std::int64_t pages = 0;

  bool operator==(const PageMove&) const = default;
};

// Not thread-safe.
class PagePlaces {
 public:
  // All pages at home.
  PagePlaces(std::int64_t pages, std::int64_t places);

  // Puts pages at places in a row from `place` on. Pages left there by earlier stays go home. Valid until the next
  // call.
  std::span<const PageMove> attach(std::span<const PageId> pages, std::int64_t place);

  // Puts them back home. Valid until the next call.
  std::span<const PageMove> send_home(std::span<const PageId> pages);

  std::int64_t place_of(PageId page) const { return where_[static_cast<std::size_t>(page)]; }
  std::int64_t home_of(PageId page) const { return places() + static_cast<std::int64_t>(page); }
  std::int64_t places() const { return static_cast<std::int64_t>(holder_.size()); }

 private:
  void add_home(std::span<const PageId> pages);
  void add(std::span<const PageId> run, std::int64_t to);
  std::size_t together(std::span<const PageId> pages) const;

  std::vector<std::int64_t> where_;   // of each page: its place
  std::vector<std::int32_t> holder_;  // of each place for stays: its page, or -1
  std::vector<PageMove> moves_;
  std::vector<PageId> leaving_;
};

}  // namespace spillway
