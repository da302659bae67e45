#include "base/page_places.h"

#include <numeric>

#include "base/error.h"

namespace spillway {
namespace {

std::size_t index_of(PageId page) { return static_cast<std::size_t>(page); }

}  // namespace

PagePlaces::PagePlaces(std::int64_t pages, std::int64_t places)
    : where_(static_cast<std::size_t>(pages)), holder_(static_cast<std::size_t>(places), -1) {
  std::iota(where_.begin(), where_.end(), places);
}

std::span<const PageMove> PagePlaces::attach(std::span<const PageId> pages, std::int64_t place) {
  SPILLWAY_CHECK(place >= 0 && place + std::ssize(pages) <= places(), "{} pages at place {} of {}", pages.size(), place,
                 places());
  moves_.clear();
  leaving_.clear();
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const std::int32_t holder = holder_[static_cast<std::size_t>(place) + i];
    if (holder >= 0 && static_cast<PageId>(holder) != pages[i]) leaving_.push_back(static_cast<PageId>(holder));
  }
  add_home(leaving_);
  while (!pages.empty()) {  // what is not there yet lies beyond these places now
    const std::size_t count = together(pages);
    if (place_of(pages.front()) != place) add(pages.first(count), place);
    place += static_cast<std::int64_t>(count);
    pages = pages.subspan(count);
  }
  return moves_;
}

std::span<const PageMove> PagePlaces::send_home(std::span<const PageId> pages) {
  moves_.clear();
  add_home(pages);
  return moves_;
}

void PagePlaces::add_home(std::span<const PageId> pages) {
  while (!pages.empty()) {
    const std::int64_t home = home_of(pages.front());
    const std::size_t count = together(pages);
    if (place_of(pages.front()) != home) add(pages.first(count), home);
    pages = pages.subspan(count);
  }
}

// How many of the first pages are neighbours by number and by place.
std::size_t PagePlaces::together(std::span<const PageId> pages) const {
  std::size_t count = 1;
  while (count < pages.size() && index_of(pages[count]) == index_of(pages[count - 1]) + 1 &&
         place_of(pages[count]) == place_of(pages[count - 1]) + 1) {
    ++count;
  }
  return count;
}

void PagePlaces::add(std::span<const PageId> run, std::int64_t to) {
  moves_.push_back({place_of(run.front()), to, static_cast<std::int64_t>(run.size())});
  for (const PageId page : run) {
    std::int64_t& where = where_[index_of(page)];
    if (where < places()) holder_[static_cast<std::size_t>(where)] = -1;
    where = to++;
    if (where < places()) holder_[static_cast<std::size_t>(where)] = static_cast<std::int32_t>(page);
  }
}

}  // namespace spillway
