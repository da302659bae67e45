#include "plan/schedule.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace spillway {
namespace {

// An instruction is marked when it is the first of its lane to touch a bundle, or to change it or give it a stay, or
// when it is the first to begin a stay on some page. One that comes later in its lane starts after the mark has been
// waited for; what is marked without need waits for nothing that it would not have waited for anyway.
class Firsts {
 public:
  Firsts(const Plan& plan, const Layout& layout)
      : plan_(plan), layout_(layout), program_(layout.programs[static_cast<std::size_t>(plan.program)]) {
    for (auto& touched : touched_) touched.assign(memory_count * layout.bundles.size(), false);
    for (auto& changed : changed_) changed.assign(memory_count * layout.bundles.size(), false);
    begun_.assign(static_cast<std::size_t>(plan.all_pages()), false);
  }

  bool is_first(const Instr& instr) {
    const auto lane = static_cast<std::size_t>(instr.lane);
    if (instr.kind == Instr::Kind::run) {
      while (static_cast<std::int32_t>(index_of(instr.op)) >= program_.segments.begin[segment_ + 1]) ++segment_;
    }
    bool first = false;
    for (const StayId id : instr.stays) {
      const Stay& stay = plan_.stays[index_of(id)];
      const std::size_t at = index_in(layout_, residence_of(stay));
      first = take(touched_[lane], at) || first;
      if (changes(instr, stay)) first = take(changed_[lane], at) || first;
    }
    for (const StayId id : instr.begins) {
      const Stay& stay = plan_.stays[index_of(id)];
      first = take(changed_[lane], index_in(layout_, residence_of(stay))) || first;
      for (const PageId page : stay.pages) first = take(begun_, index_of(page)) || first;
    }
    return first;
  }

 private:
  static bool take(std::vector<bool>& taken, std::size_t at) {
    const bool first = !taken[at];
    taken[at] = true;
    return first;
  }

  bool changes(const Instr& instr, const Stay& stay) const {
    if (instr.kind != Instr::Kind::run) return fills(instr.kind, stay.memory);
    const auto& uses = program_.uses[segment_];
    return std::any_of(uses.begin(), uses.end(),
                       [&](const Use& use) { return use.bundle == stay.bundle && use.writes; });
  }

  const Plan& plan_;
  const Layout& layout_;
  const ProgramLayout& program_;
  std::size_t segment_ = 0;
  std::array<std::vector<bool>, lane_count> touched_;  // by lane and residence
  std::array<std::vector<bool>, lane_count> changed_;
  std::vector<bool> begun_;  // by page
};

}  // namespace

InstrId Schedule::emit(Instr instr, std::int32_t segment, When when) {
  pending_.push_back({std::move(instr), 3 * static_cast<std::int64_t>(segment) + static_cast<std::int64_t>(when)});
  return static_cast<InstrId>(pending_.size() - 1);
}

void Schedule::finish(Plan& plan, const Layout& layout) {
  std::vector<std::int32_t> order(pending_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return pending_[static_cast<std::size_t>(a)].time < pending_[static_cast<std::size_t>(b)].time;
  });
  std::vector<InstrId> renamed(pending_.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    renamed[static_cast<std::size_t>(order[i])] = static_cast<InstrId>(i);
  }
  plan.instrs.reserve(pending_.size());
  for (const std::int32_t old : order) {
    Instr instr = std::move(pending_[static_cast<std::size_t>(old)].instr);
    for (InstrId& wait : instr.after) wait = renamed[index_of(wait)];
    std::sort(instr.after.begin(), instr.after.end());
    instr.after.erase(std::unique(instr.after.begin(), instr.after.end()), instr.after.end());
    plan.lanes[static_cast<std::size_t>(instr.lane)].push_back(static_cast<InstrId>(plan.instrs.size()));
    plan.instrs.push_back(std::move(instr));
  }
  pending_.clear();
  mark_firsts(plan, layout);
}

void mark_firsts(Plan& plan, const Layout& layout) {
  Firsts firsts(plan, layout);
  for (Instr& instr : plan.instrs) instr.first = firsts.is_first(instr);
}

}  // namespace spillway
