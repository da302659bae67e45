#include "plan/flat.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "plan/schedule.h"
#include "plan/stay_spans.h"

namespace spillway {
namespace {

// Steps of more are long, and laying takes time that grows with both.
constexpr std::int64_t most_pages_laid_flat = 4096;
constexpr std::int64_t most_instrs_laid_flat = 16384;

constexpr double long_ago = -1e9;  // seconds

// What a page costs that is attached, in seconds of a step. And pages count as left a while after they are, since a run
// is less punctual than what it was planned by.
constexpr double cost_of_attached_page = 50e-6;
constexpr double unpunctual_seconds = 10e-3;

double last_end(const Accesses& accesses, std::span<const double> ends) {
  double last = long_ago;
  for (const InstrId access : accesses) {
    if (access != InstrId::none) last = std::max(last, ends[index_of(access)]);
  }
  return last;
}

// Lays all stays in the order in which they begin.
class FlatLayer {
 public:
  FlatLayer(Plan& plan, const Layout& layout, std::span<const double> starts, std::span<const double> ends,
            const Ground& ground, double weight)
      : plan_(plan),
        spans_(spans_of(plan, layout.bundles.size())),
        starts_(starts),
        ends_(ends),
        weight_(weight),
        homes_(ground.homes),
        returns_(layout.bundles.size(), StaySpan::never),
        pages_(static_cast<std::size_t>(plan.pages)) {
    SPILLWAY_CHECK(ground.left.size() == pages_.size(), "{} pages on ground of {}", pages_.size(), ground.left.size());
    for (std::size_t p = 0; p < pages_.size(); ++p) pages_[p].left = ground.left[p];
  }

  void lay() {
    std::vector<std::vector<StayId>> ending(plan_.instrs.size());
    for (std::size_t s = 0; s < spans_.size(); ++s) {
      const std::int32_t last = spans_[s].last;
      if (last == StaySpan::never) {
        returns_[index_of(plan_.stays[s].bundle)] = spans_[s].first;
      } else if (last >= 0) {
        ending[static_cast<std::size_t>(last)].push_back(static_cast<StayId>(s));
      }
    }
    for (const StayId id : entry()) begin(id);
    for (const StayId id : plan_.entry.stays) {
      if (spans_[index_of(id)].last < 0) end(id);
    }
    for (std::size_t i = 0; i < plan_.instrs.size(); ++i) {
      for (const StayId id : plan_.instrs[i].begins) begin(id);
      for (const StayId id : ending[i]) end(id);
    }
    wait_for_pages(plan_, spans_);
  }

 private:
  struct Page {
    bool is_free = true;
    double left = long_ago;                 // when its last use ended
    std::int32_t wanted = StaySpan::never;  // when what lay there at the entry comes back
  };
  // Pages [begin, end) next to each other.
  struct Run {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t size() const { return end - begin; }
  };

  // What leaves at about the same time side by side.
  std::vector<StayId> entry() const {
    std::vector<StayId> stays = plan_.entry.stays;
    std::stable_sort(stays.begin(), stays.end(),
                     [&](StayId a, StayId b) { return spans_[index_of(a)].last > spans_[index_of(b)].last; });
    return stays;
  }

  void begin(StayId id) {
    const StaySpan& span = spans_[index_of(id)];
    Stay& stay = plan_.stays[index_of(id)];
    const std::vector<PageId>& home = homes_[index_of(stay.bundle)];
    const auto is_free = [&](PageId page) { return pages_[index_of(page)].is_free; };
    const bool at_boundary = span.first < 0 || span.last == StaySpan::never;
    const bool goes_home = at_boundary && !home.empty() && std::all_of(home.begin(), home.end(), is_free);
    stay.pages = goes_home ? home : choose(stay.pages.size(), span);
    for (const PageId page : stay.pages) {
      pages_[index_of(page)].is_free = false;
      if (goes_home) pages_[index_of(page)].wanted = StaySpan::never;
    }
  }

  void end(StayId id) {
    const StaySpan& span = spans_[index_of(id)];
    const Stay& stay = plan_.stays[index_of(id)];
    for (const PageId page : stay.pages) {
      Page& here = pages_[index_of(page)];
      here.is_free = true;
      here.left = std::max(here.left, last_end(span.accesses, ends_));
      if (span.first < 0) here.wanted = returns_[index_of(stay.bundle)];
    }
    if (span.first < 0) homes_[index_of(stay.bundle)] = stay.pages;
  }

  // It is free, and not wanted back before the stay ends.
  bool serves(const Page& page, const StaySpan& span) const {
    return page.is_free && (page.wanted == StaySpan::never || page.wanted > span.last);
  }

  std::vector<Run> runs_for(const StaySpan& span) const {
    std::vector<Run> all;
    for (std::size_t p = 0; p < pages_.size(); ++p) {
      if (!serves(pages_[p], span)) continue;
      if (all.empty() || all.back().end != p) all.push_back({p, p});
      all.back().end = p + 1;
    }
    return all;
  }

  // A place for a stay: what it costs, how long the run of free pages is, when the pages were left, and the first.
  using Gap = std::tuple<double, std::size_t, double, std::size_t>;

  double cost_of_waiting(double left, double when) const {
    return weight_ * std::max(0.0, left + unpunctual_seconds - when);
  }

  // The best place among pages next to each other: of those that cost as little, in the shortest run.
  std::optional<Gap> best_gap(const std::vector<Run>& runs, std::size_t count, double when) const {
    std::optional<Gap> best;
    std::deque<std::size_t> latest;  // of the pages looked at, those left later than all behind them
    for (const Run& run : runs) {
      latest.clear();
      for (std::size_t p = run.begin; p < run.end; ++p) {
        while (!latest.empty() && pages_[latest.back()].left <= pages_[p].left) latest.pop_back();
        latest.push_back(p);
        if (p + 1 < run.begin + count) continue;
        const std::size_t at = p + 1 - count;
        if (latest.front() < at) latest.pop_front();
        const double left = pages_[latest.front()].left;
        const bool splits = at != run.begin && p + 1 != run.end;
        const Gap gap(cost_of_waiting(left, when) + (splits ? cost_of_attached_page : 0), run.size(), left, at);
        if (!best || gap < *best) best = gap;
      }
    }
    return best;
  }

  static double least_cost_scattered(std::size_t count) { return static_cast<double>(count) * cost_of_attached_page; }

  // Pages anywhere, those that are wanted back too soon only where there are no others, and what they cost.
  std::pair<double, std::vector<PageId>> scattered(const std::vector<Run>& runs, std::size_t count,
                                                   const StaySpan& span, double when) const {
    std::vector<Gap> single;
    for (const Run& run : runs) {
      for (std::size_t p = run.begin; p < run.end; ++p) {
        single.emplace_back(cost_of_waiting(pages_[p].left, when), run.size(), pages_[p].left, p);
      }
    }
    double cost = least_cost_scattered(count);
    if (single.size() >= count) {
      const auto last = single.begin() + static_cast<std::ptrdiff_t>(count) - 1;
      std::nth_element(single.begin(), last, single.end());
      cost += std::get<0>(*last);
    } else {
      std::vector<Gap> wanted;  // the one that is wanted last first
      for (std::size_t p = 0; p < pages_.size(); ++p) {
        if (pages_[p].is_free && !serves(pages_[p], span)) wanted.emplace_back(-pages_[p].wanted, 0, 0, p);
      }
      std::sort(wanted.begin(), wanted.end());
      single.insert(single.end(), wanted.begin(), wanted.end());
      cost = std::numeric_limits<double>::infinity();
    }
    SPILLWAY_CHECK(single.size() >= count, "stays need more than the {} pages of the plan", pages_.size());
    std::vector<PageId> pages;
    for (std::size_t i = 0; i < count; ++i) pages.push_back(static_cast<PageId>(std::get<3>(single[i])));
    std::sort(pages.begin(), pages.end());
    return {cost, std::move(pages)};
  }

  std::vector<PageId> choose(std::size_t count, const StaySpan& span) const {
    const std::vector<Run> runs = runs_for(span);
    const double when = span.first < 0 ? 0 : starts_[static_cast<std::size_t>(span.first)];
    const std::optional<Gap> gap = best_gap(runs, count, when);
    if (!gap || std::get<0>(*gap) > least_cost_scattered(count)) {
      auto [cost, pages] = scattered(runs, count, span, when);
      if (!gap || cost < std::get<0>(*gap)) return std::move(pages);
    }
    std::vector<PageId> pages;
    for (std::size_t p = 0; p < count; ++p) pages.push_back(static_cast<PageId>(std::get<3>(*gap) + p));
    return pages;
  }

  Plan& plan_;
  const std::vector<StaySpan> spans_;
  std::span<const double> starts_;
  std::span<const double> ends_;
  const double weight_;
  std::vector<std::vector<PageId>> homes_;
  std::vector<std::int32_t> returns_;  // by bundle: when its stay at the exit begins
  std::vector<Page> pages_;
};

}  // namespace

Ground::Ground(const Layout& layout, const Plan& plan)
    : homes(layout.bundles.size()), left(static_cast<std::size_t>(plan.pages), long_ago) {}

Ground::Ground(const Layout& layout, const Plan& before, std::span<const double> ends, double seconds)
    : Ground(layout, before) {
  const std::vector<StaySpan> spans = spans_of(before, layout.bundles.size());
  for (std::size_t s = 0; s < spans.size(); ++s) {
    for (const PageId page : before.stays[s].pages) {
      left[index_of(page)] = std::max(left[index_of(page)], last_end(spans[s].accesses, ends) - seconds);
    }
  }
  for (const StayId id : before.exit.stays) {
    const Stay& stay = before.stays[index_of(id)];
    homes[index_of(stay.bundle)] = stay.pages;
  }
}

void lay_flat(Plan& plan, const Layout& layout, std::span<const double> starts, std::span<const double> ends,
              const Ground& ground, double weight) {
  FlatLayer(plan, layout, starts, ends, ground, weight).lay();
  plan.flat = true;
  mark_firsts(plan, layout);
}

bool may_be_laid_flat(const Plan& plan) {
  return plan.pages <= most_pages_laid_flat && std::ssize(plan.instrs) <= most_instrs_laid_flat;
}

bool is_flat(std::span<const PageId> pages) {
  for (std::size_t i = 1; i < pages.size(); ++i) {
    if (index_of(pages[i]) != index_of(pages[i - 1]) + 1) return false;
  }
  return true;
}

}  // namespace spillway
