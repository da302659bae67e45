#include "plan/placement.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include "base/error.h"
#include "plan/stay_spans.h"

namespace spillway {
namespace {

constexpr std::int32_t never = StaySpan::never;

// Pages that are free, in the order in which they came free.
class FreePages {
 public:
  explicit FreePages(std::size_t count) : pages_(count) {
    for (std::size_t p = 0; p < count; ++p) order_.emplace(-1, static_cast<PageId>(p));
  }

  bool has(PageId id) const { return pages_[index_of(id)].is_free; }

  void take(PageId id) {
    order_.erase({pages_[index_of(id)].left, id});
    pages_[index_of(id)].is_free = false;
  }
  void give(PageId id, std::int32_t now) {
    pages_[index_of(id)].is_free = true;
    pages_[index_of(id)].left = now;
    order_.emplace(now, id);
  }

  // Takes those that came free first of the ones that nobody wants back until after `last`; where these are too few,
  // also the ones wanted back latest.
  std::vector<PageId> take(std::size_t count, std::int32_t last) {
    std::vector<PageId> taken;
    std::vector<PageId> too_soon;
    for (auto at = order_.begin(); at != order_.end() && taken.size() < count; ++at) {
      const std::int32_t wanted = pages_[index_of(at->second)].wanted_first();
      (wanted == never || wanted > last ? taken : too_soon).push_back(at->second);
    }
    const std::size_t lacking = count - taken.size();
    SPILLWAY_CHECK(lacking <= too_soon.size(), "stays of a device's plan need more than its {} pages", pages_.size());
    std::stable_sort(too_soon.begin(), too_soon.end(), [&](PageId a, PageId b) {
      return pages_[index_of(a)].wanted_first() > pages_[index_of(b)].wanted_first();
    });
    taken.insert(taken.end(), too_soon.begin(), too_soon.begin() + static_cast<std::ptrdiff_t>(lacking));
    for (const PageId id : taken) take(id);
    return taken;
  }

  // A page may be wanted by several.
  void want(PageId id, std::int32_t when) {
    std::vector<std::int32_t>& wanted = pages_[index_of(id)].wanted;
    wanted.insert(std::upper_bound(wanted.begin(), wanted.end(), when), when);
  }
  void unwant(PageId id, std::int32_t when) {
    std::vector<std::int32_t>& wanted = pages_[index_of(id)].wanted;
    wanted.erase(std::lower_bound(wanted.begin(), wanted.end(), when));
  }

 private:
  struct Page {
    std::vector<std::int32_t> wanted;  // ascending
    std::int32_t left = -1;
    bool is_free = true;

    std::int32_t wanted_first() const { return wanted.empty() ? never : wanted.front(); }
  };

  std::vector<Page> pages_;
  std::set<std::pair<std::int32_t, PageId>> order_;  // when it came free, page
};

class Placement {
 public:
  Placement(Plan& plan, std::size_t bundles)
      : plan_(plan), spans_(spans_of(plan, bundles)), homes_(bundles), free_(static_cast<std::size_t>(plan.pages)) {}

  void place() {
    std::vector<std::vector<StayId>> ending(plan_.instrs.size());
    for (std::size_t s = 0; s < spans_.size(); ++s) {
      const std::int32_t last = spans_[s].last;
      if (last >= 0 && last != never) ending[static_cast<std::size_t>(last)].push_back(static_cast<StayId>(s));
    }
    for (const StayId id : plan_.entry.stays) begin(id);
    for (const StayId id : plan_.entry.stays) {
      if (spans_[index_of(id)].last < 0) end(id, -1);
    }
    for (std::size_t i = 0; i < plan_.instrs.size(); ++i) {
      for (const StayId id : plan_.instrs[i].begins) begin(id);
      for (const StayId id : ending[i]) end(id, static_cast<std::int32_t>(i));
    }
    wait_for_pages(plan_, spans_);
  }

 private:
  void begin(StayId id) {
    Stay& stay = plan_.stays[index_of(id)];
    const StaySpan& span = spans_[index_of(id)];
    std::vector<PageId>& home = homes_[index_of(stay.bundle)];
    for (const PageId page : home) free_.unwant(page, span.first);
    std::fill(stay.pages.begin(), stay.pages.end(), PageId::none);
    std::size_t lacking = stay.pages.size();
    for (std::size_t i = 0; i < home.size(); ++i) {
      if (!free_.has(home[i])) continue;
      stay.pages[i] = home[i];
      free_.take(home[i]);
      --lacking;
    }
    const std::vector<PageId> others = free_.take(lacking, span.last);
    auto other = others.begin();
    for (PageId& page : stay.pages) {
      if (page == PageId::none) page = *other++;
    }
    if (home.empty()) home = stay.pages;
  }

  void end(StayId id, std::int32_t now) {
    const Stay& stay = plan_.stays[index_of(id)];
    for (const PageId page : stay.pages) free_.give(page, now);
    const std::int32_t next = spans_[index_of(id)].next;
    if (next == never) return;
    for (const PageId page : homes_[index_of(stay.bundle)]) free_.want(page, next);
  }

  Plan& plan_;
  std::vector<StaySpan> spans_;             // by stay
  std::vector<std::vector<PageId>> homes_;  // by bundle: the pages of its first stay
  FreePages free_;
};

}  // namespace

void place_stays(Plan& plan, const Layout& layout) { Placement(plan, layout.bundles.size()).place(); }

}  // namespace spillway
