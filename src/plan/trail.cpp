#include "plan/trail.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace spillway {
namespace {

// Positions of one plan become those of all plans; 0 stays "none needs to be done".
LaneClock later_by(const LaneClock& clock, const LaneClock& base) {
  LaneClock out{};
  for (std::size_t lane = 0; lane < lane_count; ++lane) out[lane] = clock[lane] > 0 ? clock[lane] + base[lane] : 0;
  return out;
}

void raise(LaneClock& clock, std::size_t lane, std::int64_t count) { clock[lane] = std::max(clock[lane], count); }

// Whether a run changes a bundle, as its segment does: by bundle, for the segment of one op.
class Changes {
 public:
  explicit Changes(const ProgramLayout& layout) : layout_(layout) {}

  bool changes(OpId op, BundleId bundle) {
    const auto at = static_cast<std::int32_t>(index_of(op));
    while (at >= layout_.segments.begin[segment_ + 1]) ++segment_;
    const auto& uses = layout_.uses[segment_];
    return std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return use.bundle == bundle && use.writes; });
  }

 private:
  const ProgramLayout& layout_;
  std::size_t segment_ = 0;  // ops come in order
};

}  // namespace

LaneClock join(const LaneClock& a, const LaneClock& b) {
  LaneClock out{};
  for (std::size_t lane = 0; lane < lane_count; ++lane) out[lane] = std::max(a[lane], b[lane]);
  return out;
}

PlanWaits::PlanWaits(const Plan& plan, const Layout& layout)
    : plan_(plan),
      layout_(layout),
      waits_(plan.instrs.size()),
      first_of_(plan.instrs.size(), -1),
      page_accessed_(static_cast<std::size_t>(plan.all_pages())),
      page_begins_(static_cast<std::size_t>(plan.all_pages()), std::numeric_limits<std::int64_t>::max()),
      page_ends_(static_cast<std::size_t>(plan.all_pages()), -1) {
  std::vector<std::int64_t> positions(plan.instrs.size());
  for (const auto& lane : plan.lanes) {
    for (std::size_t i = 0; i < lane.size(); ++i) positions[index_of(lane[i])] = static_cast<std::int64_t>(i);
  }
  Changes program(layout.programs[static_cast<std::size_t>(plan.program)]);
  std::vector<std::int32_t> touched(memory_count * layout.bundles.size(), -1);
  const auto touched_at = [&](const Residence& what) -> Touched& {
    std::int32_t& at = touched[index_in(layout, what)];
    if (at < 0) {
      at = static_cast<std::int32_t>(touched_.size());
      touched_.push_back({what, {}, {}, {}, {}});
    }
    return touched_[static_cast<std::size_t>(at)];
  };
  std::vector<LaneClock> stay_accessed(plan.stays.size());
  std::vector<std::int64_t> stay_ends(plan.stays.size(), -1);
  for (std::size_t i = 0; i < plan.instrs.size(); ++i) {
    const Instr& instr = plan.instrs[i];
    const auto lane = static_cast<std::size_t>(instr.lane);
    const std::int64_t count = positions[i] + 1;
    for (const InstrId wait : instr.after) {
      raise(waits_[i], static_cast<std::size_t>(plan.instrs[index_of(wait)].lane), positions[index_of(wait)] + 1);
    }
    if (instr.kind == Instr::Kind::commit) {
      commit_ = static_cast<InstrId>(i);
      position_of_commit_ = positions[i];
    }
    if (instr.first) {
      first_of_[i] = static_cast<std::int32_t>(firsts_.size());
      firsts_.push_back({static_cast<InstrId>(i), {}});
    }
    for (const StayId id : instr.stays) {
      const Residence what = residence_of(plan.stays[index_of(id)]);
      const bool changes =
          instr.kind == Instr::Kind::run ? program.changes(instr.op, what.bundle) : fills(instr.kind, what.memory);
      Touched& log = touched_at(what);
      raise(log.accessed, lane, count);
      if (changes) raise(log.written, lane, count);
      if (is_of_disk(instr.kind)) {
        Touched& below = touched_at({MemoryId::host, what.bundle});
        raise(below.moved, lane, count);
        if (instr.kind == Instr::Kind::write) raise(below.stored, lane, count);
      }
      if (instr.first) firsts_.back().changes.push_back(changes);
      raise(stay_accessed[index_of(id)], lane, count);
      stay_ends[index_of(id)] = static_cast<std::int64_t>(i);
    }
    for (const StayId id : instr.begins) {
      for (const PageId page : plan.stays[index_of(id)].pages) {
        std::int64_t& begins = page_begins_[index_of(page)];
        begins = std::min(begins, static_cast<std::int64_t>(i));
      }
    }
  }
  for (std::size_t s = 0; s < plan.stays.size(); ++s) {
    for (const PageId page : plan.stays[s].pages) {
      page_accessed_[index_of(page)] = join(page_accessed_[index_of(page)], stay_accessed[s]);
      page_ends_[index_of(page)] = std::max(page_ends_[index_of(page)], stay_ends[s]);
    }
  }
}

LaneClock Following::wait_of(InstrId id) const {
  LaneClock own = later_by(waits->of(id), base);
  if (id == waits->commit()) {
    const auto lane = static_cast<std::size_t>(LaneId::write);
    own[lane] = base[lane] + waits->position_of_commit();
  }
  const std::int32_t first = waits->first_of(id);
  return first < 0 ? own : join(own, firsts[static_cast<std::size_t>(first)]);
}

Trail::Trail(std::size_t bundles, std::size_t pages)
    : residences_(bundles), page_accessed_(pages), page_left_(pages, -1) {}

Following Trail::follow(const PlanWaits& waits, std::span<const std::vector<PageId>> held) {
  Following following{&waits, lay_pages(waits, held), base_, {}, ++runs_};
  for (const PlanWaits::First& first : waits.firsts_) {
    following.firsts.push_back(wait_of(waits, first, following.physical));
  }
  note(waits, following.physical);
  return following;
}

// Pages that are used first come to those that were left first, so that nobody waits for the last plan's tail.
std::vector<PageId> Trail::lay_pages(const PlanWaits& waits, std::span<const std::vector<PageId>> held) const {
  const Plan& plan = waits.plan();
  std::vector<PageId> physical(static_cast<std::size_t>(plan.all_pages()), PageId::none);
  std::vector<bool> used(page_left_.size(), false);  // by physical page
  SPILLWAY_CHECK(held.size() == plan.entry.stays.size(), "{} bundles for an entry of {}", held.size(),
                 plan.entry.stays.size());
  for (std::size_t s = 0; s < held.size(); ++s) {
    const Stay& stay = plan.stays[index_of(plan.entry.stays[s])];
    for (std::size_t i = 0; i < stay.pages.size(); ++i) {
      physical[index_of(stay.pages[i])] = held[s][i];
      used[index_of(held[s][i])] = true;
    }
  }
  // Of both, the last `device_pages` are the device's.
  const std::int64_t device = std::ssize(used) - plan.device_pages;
  if (plan.flat) {
    SPILLWAY_CHECK(plan.pages == device, "a plan of {} pages in {}", plan.pages, device);
    keep_numbers(std::span(physical).first(static_cast<std::size_t>(plan.pages)), 0);
  } else {
    lay_open_pages(waits, used, physical);
  }
  keep_numbers(std::span(physical).subspan(static_cast<std::size_t>(plan.pages)), device);
  return physical;
}

// A device maps pages at addresses, and is to find the same there in every step (plan/placement.h); pages of the host
// lie next to each other by their numbers (plan/flat.h). So each page is the physical one of its number; where a page
// of the entry lies on that, the one of that page's number, and so on. `of_plan`: of one memory, whose pages are
// numbered from `first` on.
void Trail::keep_numbers(std::span<PageId> of_plan, std::int64_t first) {
  std::vector<std::size_t> held(of_plan.size(), of_plan.size());  // by number: by which of the entry
  for (std::size_t p = 0; p < held.size(); ++p) {
    if (of_plan[p] != PageId::none) held[index_of(of_plan[p]) - static_cast<std::size_t>(first)] = p;
  }
  for (std::size_t p = 0; p < held.size(); ++p) {
    if (of_plan[p] != PageId::none) continue;
    std::size_t number = p;
    while (held[number] < held.size()) number = held[number];
    of_plan[p] = static_cast<PageId>(first + static_cast<std::int64_t>(number));
  }
}

// Of the host. `used`: by physical page, whether the entry lies there.
void Trail::lay_open_pages(const PlanWaits& waits, const std::vector<bool>& used, std::vector<PageId>& physical) const {
  std::vector<PageId> open;
  for (std::int64_t p = 0; p < waits.plan().pages; ++p) {
    if (physical[static_cast<std::size_t>(p)] == PageId::none) open.push_back(static_cast<PageId>(p));
  }
  std::vector<PageId> left;
  for (std::int64_t p = 0; p < std::ssize(used) - waits.plan().device_pages; ++p) {
    if (!used[static_cast<std::size_t>(p)]) left.push_back(static_cast<PageId>(p));
  }
  std::stable_sort(open.begin(), open.end(), [&](PageId a, PageId b) {
    return waits.page_begins_[index_of(a)] < waits.page_begins_[index_of(b)];
  });
  std::stable_sort(left.begin(), left.end(),
                   [&](PageId a, PageId b) { return page_left_[index_of(a)] < page_left_[index_of(b)]; });
  for (std::size_t i = 0; i < open.size(); ++i) physical[index_of(open[i])] = left[i];
}

const PlanWaits::Touched& Trail::at(const PlanWaits& waits, const Residence& what) const {
  static const PlanWaits::Touched untouched;
  const std::size_t at = index_in(waits.layout_, what);
  return at < residences_.size() ? residences_[at] : untouched;
}

LaneClock Trail::wait_of(const PlanWaits& waits, const PlanWaits::First& first,
                         const std::vector<PageId>& physical) const {
  const Plan& plan = waits.plan();
  const Instr& instr = plan.instrs[index_of(first.instr)];
  LaneClock clock{};
  for (std::size_t i = 0; i < instr.stays.size(); ++i) {
    const Residence what = residence_of(plan.stays[index_of(instr.stays[i])]);
    const PlanWaits::Touched& before = at(waits, what);
    const PlanWaits::Touched& below = at(waits, {MemoryId::host, what.bundle});
    clock = join(clock, first.changes[i] ? before.accessed : before.written);
    if (instr.kind == Instr::Kind::read) clock = join(clock, below.stored);
    if (instr.kind == Instr::Kind::write) clock = join(clock, below.moved);
  }
  for (const StayId id : instr.begins) {
    const Stay& stay = plan.stays[index_of(id)];
    clock = join(clock, at(waits, residence_of(stay)).accessed);
    for (const PageId page : stay.pages) clock = join(clock, page_accessed_[index_of(physical[index_of(page)])]);
  }
  return clock;
}

void Trail::note(const PlanWaits& waits, const std::vector<PageId>& physical) {
  for (const PlanWaits::Touched& touched : waits.touched_) {
    const std::size_t at = index_in(waits.layout_, touched.what);
    if (at >= residences_.size()) residences_.resize(memory_count * waits.layout_.bundles.size());
    PlanWaits::Touched& log = residences_[at];
    log.accessed = join(log.accessed, later_by(touched.accessed, base_));
    log.written = join(log.written, later_by(touched.written, base_));
    log.moved = join(log.moved, later_by(touched.moved, base_));
    log.stored = join(log.stored, later_by(touched.stored, base_));
  }
  for (std::size_t p = 0; p < physical.size(); ++p) {
    const std::size_t page = index_of(physical[p]);
    page_accessed_[page] = join(page_accessed_[page], later_by(waits.page_accessed_[p], base_));
    if (waits.page_ends_[p] >= 0) page_left_[page] = instrs_ + waits.page_ends_[p];
  }
  for (std::size_t lane = 0; lane < lane_count; ++lane) base_[lane] += std::ssize(waits.plan().lanes[lane]);
  instrs_ += std::ssize(waits.plan().instrs);
}

}  // namespace spillway
