#include "plan/direct.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "plan/schedule.h"

namespace spillway {
namespace {

using LastOf = std::array<InstrId, lane_count>;  // by lane, the last
constexpr LastOf nothing_yet = {InstrId::none, InstrId::none, InstrId::none,
                                InstrId::none, InstrId::none, InstrId::none};

void add(LastOf& all, const LastOf& more) {
  for (std::size_t lane = 0; lane < lane_count; ++lane) all[lane] = std::max(all[lane], more[lane]);
}

// What an instruction must find done, from what those before it in the new plan touch.
class PlanSoFar {
 public:
  PlanSoFar(const Plan& plan, const Layout& layout)
      : stays_(plan.stays),
        layout_(layout),
        program_(layout.programs[static_cast<std::size_t>(plan.program)]),
        logs_(stays_.size()),
        disks_(layout.bundles.size()),
        current_(memory_count * layout.bundles.size(), StayId::none),
        owner_(static_cast<std::size_t>(plan.all_pages()), StayId::none) {
    for (const StayId id : plan.entry.stays) begin(id);
  }

  // In the order of the plan.
  LastOf of(const Instr& instr) {
    if (instr.kind == Instr::Kind::run) {
      while (static_cast<std::int32_t>(index_of(instr.op)) >= program_.segments.begin[segment_ + 1]) ++segment_;
    }
    LastOf needs = nothing_yet;
    for (const StayId id : instr.begins) add_before(id, needs);
    for (const StayId id : instr.stays) {
      const Log& log = logs_[index_of(id)];
      add(needs, changes(instr, id) ? log.accessed : log.changed);
      const Disk& disk = disks_[index_of(stays_[index_of(id)].bundle)];
      if (instr.kind == Instr::Kind::read) add(needs, disk.stored);
      if (instr.kind == Instr::Kind::write) add(needs, disk.moved);
    }
    return needs;
  }

  void note(const Instr& instr, InstrId number) {
    const auto lane = static_cast<std::size_t>(instr.lane);
    for (const StayId id : instr.begins) begin(id);
    for (const StayId id : instr.stays) {
      logs_[index_of(id)].accessed[lane] = number;
      if (changes(instr, id)) logs_[index_of(id)].changed[lane] = number;
      Disk& disk = disks_[index_of(stays_[index_of(id)].bundle)];
      if (is_of_disk(instr.kind)) disk.moved[lane] = number;
      if (instr.kind == Instr::Kind::write) disk.stored[lane] = number;
    }
  }

 private:
  struct Log {
    LastOf accessed = nothing_yet;
    LastOf changed = nothing_yet;
  };
  struct Disk {
    LastOf moved = nothing_yet;
    LastOf stored = nothing_yet;
  };

  StayId& current(StayId id) { return current_[index_in(layout_, residence_of(stays_[index_of(id)]))]; }

  // Those of its pages, and of its address.
  void add_before(StayId id, LastOf& needs) {
    for (const PageId page : stays_[index_of(id)].pages) {
      const StayId owner = owner_[index_of(page)];
      if (owner != StayId::none) add(needs, logs_[index_of(owner)].accessed);
    }
    if (current(id) != StayId::none) add(needs, logs_[index_of(current(id))].accessed);
  }

  void begin(StayId id) {
    for (const PageId page : stays_[index_of(id)].pages) owner_[index_of(page)] = id;
    current(id) = id;
  }

  bool changes(const Instr& instr, StayId id) const {
    const Stay& stay = stays_[index_of(id)];
    if (instr.kind != Instr::Kind::run) return fills(instr.kind, stay.memory);
    const auto& uses = program_.uses[segment_];
    return std::any_of(uses.begin(), uses.end(),
                       [&](const Use& use) { return use.bundle == stay.bundle && use.writes; });
  }

  const std::vector<Stay> stays_;
  const Layout& layout_;
  const ProgramLayout& program_;
  std::size_t segment_ = 0;
  std::vector<Log> logs_;        // by stay
  std::vector<Disk> disks_;      // by bundle
  std::vector<StayId> current_;  // by residence
  std::vector<StayId> owner_;    // by page
};

class Fuser {
 public:
  Fuser(Plan plan, const Layout& layout)
      : old_(std::move(plan)),
        layout_(layout),
        so_far_(old_, layout),
        fates_(old_.instrs.size()),
        behind_pair_(old_.instrs.size(), false),
        new_ids_(old_.instrs.size(), InstrId::none) {}

  Plan fuse() {
    find_pairs();
    Plan plan = old_;
    plan.instrs.clear();
    for (auto& lane : plan.lanes) lane.clear();
    for (std::size_t i = 0; i < old_.instrs.size(); ++i) {
      if (fates_[i].gone) continue;
      const auto number = static_cast<InstrId>(plan.instrs.size());
      Instr instr = fates_[i].other ? direct(i, plan) : old_.instrs[i];
      wait_anew(instr, fates_[i].other.has_value());
      so_far_.note(instr, number);
      new_ids_[i] = number;
      plan.lanes[static_cast<std::size_t>(instr.lane)].push_back(number);
      plan.instrs.push_back(std::move(instr));
    }
    drop_unused_stays(plan);
    mark_firsts(plan, layout_);
    return plan;
  }

 private:
  // Of an instruction that is one of a pair: the copy becomes the direct move, and the move of the disk is gone.
  struct Fate {
    std::optional<std::size_t> other;
    bool gone = false;
  };

  void find_pairs() {
    std::vector<std::vector<std::size_t>> accesses(old_.stays.size());
    for (std::size_t i = 0; i < old_.instrs.size(); ++i) {
      for (const StayId id : old_.instrs[i].stays) accesses[index_of(id)].push_back(i);
    }
    std::vector<bool> at_boundary(old_.stays.size(), false);
    for (const Boundary* boundary : {&old_.entry, &old_.exit}) {
      for (const StayId id : boundary->stays) at_boundary[index_of(id)] = true;
    }
    for (std::size_t s = 0; s < old_.stays.size(); ++s) {
      if (old_.stays[s].memory != MemoryId::host || at_boundary[s] || accesses[s].size() != 2) continue;
      const std::size_t first = accesses[s].front();
      const std::size_t last = accesses[s].back();
      const bool state = layout_.bundles[index_of(old_.stays[s].bundle)].state;
      if (is(first, Instr::Kind::read) && is(last, Instr::Kind::up)) pair(last, first);
      if (is(first, Instr::Kind::down) && is(last, Instr::Kind::write) && !state) pair(first, last);
    }
    for (const auto& lane : old_.lanes) {
      bool behind = false;
      for (const InstrId id : lane) behind_pair_[index_of(id)] = behind = behind || fates_[index_of(id)].other;
    }
  }

  bool is(std::size_t i, Instr::Kind kind) const { return old_.instrs[i].kind == kind; }

  void pair(std::size_t copy, std::size_t move) {
    fates_[copy].other = move;
    fates_[move] = {copy, true};
  }

  // Whoever waits for an instruction knows that all before it in its lane are done too, and what those waited for. So
  // where one of a pair stands there, what is needed is looked up anew. Waits for ops stay as they were: the pages of
  // the device have the owners that they had.
  void wait_anew(Instr& instr, bool is_direct) {
    LastOf needs = so_far_.of(instr);
    bool looks_up = is_direct;
    std::vector<InstrId> waits;
    LastOf waited = nothing_yet;
    for (const InstrId wait : instr.after) {
      const LaneId lane = old_.instrs[index_of(wait)].lane;
      looks_up = looks_up || behind_pair_[index_of(wait)];
      if (fates_[index_of(wait)].other || (is_direct && lane != LaneId::compute)) continue;
      const InstrId id = new_ids_[index_of(wait)];
      waits.push_back(id);
      waited[static_cast<std::size_t>(lane)] = std::max(waited[static_cast<std::size_t>(lane)], id);
    }
    needs[static_cast<std::size_t>(LaneId::compute)] = InstrId::none;
    for (std::size_t lane = 0; lane < lane_count && looks_up; ++lane) {
      if (needs[lane] > waited[lane]) waits.push_back(needs[lane]);
    }
    std::sort(waits.begin(), waits.end());
    instr.after = std::move(waits);
  }

  // In the place of a copy, with its waits. Counts its bytes.
  Instr direct(std::size_t copy, Plan& plan) const {
    const Instr& link = old_.instrs[copy];
    const Instr& disk = old_.instrs[*fates_[copy].other];
    const StayId stay = link.stays.front();
    const std::int64_t bytes = layout_.bundles[index_of(old_.stays[index_of(stay)].bundle)].bytes;
    const bool reads = disk.kind == Instr::Kind::read;
    (reads ? plan.up_bytes : plan.down_bytes) -= bytes;
    (reads ? plan.direct.read_bytes : plan.direct.write_bytes) += bytes;
    return {disk.kind, disk.lane, OpId::none, {stay}, reads ? std::vector{stay} : std::vector<StayId>(), link.after};
  }

  static void drop_unused_stays(Plan& plan) {
    std::vector<bool> used(plan.stays.size(), false);
    const auto for_all = [&](const auto& visit) {
      for (Instr& instr : plan.instrs) visit(instr.stays), visit(instr.begins);
      visit(plan.entry.stays), visit(plan.exit.stays);
    };
    for_all([&](const std::vector<StayId>& ids) {
      for (const StayId id : ids) used[index_of(id)] = true;
    });
    std::vector<StayId> renamed(plan.stays.size());
    std::vector<Stay> stays;
    for (std::size_t s = 0; s < plan.stays.size(); ++s) {
      renamed[s] = static_cast<StayId>(stays.size());
      if (used[s]) stays.push_back(std::move(plan.stays[s]));
    }
    plan.stays = std::move(stays);
    for_all([&](std::vector<StayId>& ids) {
      for (StayId& id : ids) id = renamed[index_of(id)];
    });
  }

  const Plan old_;
  const Layout& layout_;
  PlanSoFar so_far_;
  std::vector<Fate> fates_;        // by instruction of the old plan
  std::vector<bool> behind_pair_;  // the same: it, or one before it in its lane, is of a pair
  std::vector<InstrId> new_ids_;   // the same
};

}  // namespace

Plan with_direct_moves(Plan plan, const Layout& layout) { return Fuser(std::move(plan), layout).fuse(); }

}  // namespace spillway
