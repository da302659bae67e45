// The planner: one pass over the segments of a step. Before each segment, whatever it touches is brought in; what gives
// way for that is the policy's choice; then reads for the segments to come are issued into pages that are free or can
// be freed. A write is placed right after the last change of what will be evicted, so that by the time the pages are
// wanted they are clean.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "plan/plan.h"
#include "plan/policy.h"
#include "plan/residency.h"
#include "plan/schedule.h"
#include "plan/stay_spans.h"
#include "plan/uses.h"

namespace spillway {
namespace {

Residents residents_at(const Plan& plan, const Boundary& boundary, MemoryId memory) {
  Residents residents;
  for (std::size_t i = 0; i < boundary.stays.size(); ++i) {
    const Stay& stay = plan.stays[index_of(boundary.stays[i])];
    if (stay.memory == memory) residents.push_back({stay.bundle, boundary.dirty[i]});
  }
  std::sort(residents.begin(), residents.end(), [](const Held& a, const Held& b) { return a.bundle < b.bundle; });
  return residents;
}

class Planner {
 public:
  Planner(const Layout& layout, std::int32_t program, std::int64_t pages, const Uses& uses, const VictimPolicy& policy,
          const PlanRequest& request)
      : layout_(layout),
        program_(layout.programs[static_cast<std::size_t>(program)]),
        uses_(uses),
        policy_(policy),
        visit_pages_(visit_pages(layout)),
        unplaced_(request.unplaced),
        plan_(empty_plan(program, pages)),
        memory_(layout, uses, policy, request, schedule_, plan_) {}

  // Once. Without `exit`, reads for the start of the next step are issued at the end of this one, and the boundary is
  // whatever that leaves in memory. Returns what the plan holds at its exit.
  Residents make(const Residents& entry, const Residents* exit, const PlanRequest& request) {
    commits_ = request.commits;
    lanes_ = request.lanes;
    enter(entry);
    wrap_ = exit == nullptr;
    exit_.assign(layout_.bundles.size(), wrap_);
    for (std::size_t i = 0; exit != nullptr && i < exit->size(); ++i) exit_[index_of((*exit)[i].bundle)] = true;
    for (std::int32_t s = 0; s < segments(); ++s) {
      now_ = s;
      bring_back();
      bring_in(s);
      read_ahead(s);
      run(s);
    }
    now_ = segments();
    bring_back();
    if (exit != nullptr) meet(*exit);
    if (request.clean != nullptr) clean(*request.clean);
    make_room_at_boundary();
    if (commits_) commit();
    leave();
    return residents_at(plan_, plan_.exit, MemoryId::host);
  }

  // The plan that was made. Apart, since most of those that only let a boundary settle are not wanted.
  Plan finish() {
    schedule_.finish(plan_, layout_);
    count_slots();
    if (!unplaced_) keep_pages(plan_, layout_);
    return std::move(plan_);
  }

 private:
  static Plan empty_plan(std::int32_t program, std::int64_t pages) {
    Plan plan;
    plan.program = program;
    plan.pages = pages;
    return plan;
  }

  std::int32_t segments() const { return uses_.segments(); }
  const std::vector<Use>& uses(std::int32_t s) const { return program_.uses[static_cast<std::size_t>(s)]; }
  bool is_state(BundleId bundle) const { return layout_.bundles[index_of(bundle)].state; }
  bool is_committed(BundleId bundle) const { return layout_.bundles[index_of(bundle)].committed; }

  void enter(const Residents& residents) {
    for (const Held& held : residents) {
      if (program_.dead_on_entry[index_of(held.bundle)]) continue;
      memory_.take(held.bundle, 0);
      memory_.holding(held.bundle).dirty = held.dirty;
      plan_.entry.stays.push_back(memory_.holding(held.bundle).stay);
      plan_.entry.dirty.push_back(held.dirty);
    }
  }

  void bring_in(std::int32_t s) {
    std::int64_t wanted = 0;
    for (const Use& use : uses(s)) {
      if (!use.below && !memory_.has(use.bundle)) wanted += layout_.pages_of(use.bundle);
    }
    while (memory_.free_pages() < wanted) {
      const BundleId victim = memory_.victim(s);
      SPILLWAY_CHECK(victim != BundleId::none, "segment {} does not fit in {} pages", s, plan_.pages);
      evict(victim);
    }
    for (const Use& use : uses(s)) {
      if (!use.below && !memory_.has(use.bundle) && !use.creates) read(use.bundle);
    }
    for (const Use& use : uses(s)) {
      if (!use.below && use.creates) memory_.take(use.bundle, s);
    }
  }

  void read(BundleId bundle) {
    memory_.take(bundle, now_);
    Holding& held = memory_.holding(bundle);
    held.dirty = false;
    Instr instr{Instr::Kind::read, LaneId::read, OpId::none, {held.stay}, {held.stay}, {}};
    // Its address is where it lay before, and may still be read or read into there.
    for (const InstrId wait : held.runs) {
      if (wait != InstrId::none) instr.after.push_back(wait);
    }
    for (const InstrId wait : {held.last_read, held.last_write}) {
      if (wait != InstrId::none) instr.after.push_back(wait);
    }
    if (policy_.paced() && newest_run_ != InstrId::none) instr.after.push_back(newest_run_);
    held.runs = no_accesses;
    held.last_change = InstrId::none;
    held.changed_in = -1;
    held.last_read = schedule_.emit(std::move(instr), now_, When::read);
    plan_.traffic.read_bytes += layout_.bundles[index_of(bundle)].bytes;
  }

  void evict(BundleId bundle) {
    if (memory_.holding(bundle).dirty) write(bundle);
    ahead_ = std::min(ahead_, uses_.next(bundle, now_ - 1));
    memory_.release(bundle);
  }

  // What runs in the memory below is to find the newest there; what it changes, or uses last, is of no use here.
  void hand_down(const Use& use) {
    if (memory_.has(use.bundle)) {
      if (memory_.holding(use.bundle).dirty) write(use.bundle);
      if (use.writes || use.creates || use.ends) {
        memory_.release(use.bundle);
      } else {
        memory_.touched(use.bundle, now_, false);  // the next use is another one
      }
    }
    if (use.writes || use.creates) changed_below_.push_back(use.bundle);
  }

  // What was changed below comes back where there is room for it until its next use: one update later, for copies go in
  // order, and those behind it need not wait for that update.
  void bring_back() {
    if (changed_below_.empty() && now_ < segments()) return;
    bring_back(coming_back_);
    coming_back_ = std::exchange(changed_below_, {});
    if (now_ == segments()) bring_back(coming_back_);
  }

  void bring_back(const std::vector<BundleId>& bundles) {
    for (const BundleId bundle : bundles) {
      const std::int32_t j = uses_.next(bundle, now_ - 1);
      const bool next_step = j >= segments();
      if (j == never_used || (next_step && !exit_[index_of(bundle)])) continue;
      if (memory_.has(bundle) || uses_.next_is_below(bundle, now_ - 1)) continue;
      std::int64_t reserve = uses_.pages_to_create(now_, j);
      if (next_step) reserve = std::max(reserve, visit_pages_);
      if (policy_.lookahead_segments() > 0 && make_room(layout_.pages_of(bundle) + reserve, j)) {
        read(bundle);
      } else {
        ahead_ = std::min(ahead_, j);
      }
    }
  }

  void write(BundleId bundle) {
    Holding& held = memory_.holding(bundle);
    Instr instr{Instr::Kind::write, LaneId::write, OpId::none, {held.stay}, {}, {}};
    if (held.last_change != InstrId::none) instr.after.push_back(held.last_change);
    held.last_write = schedule_.emit(std::move(instr), held.changed_in, When::write);
    held.dirty = false;
    held.spilled = true;
    plan_.traffic.write_bytes += layout_.bundles[index_of(bundle)].bytes;
  }

  // Issues reads for the segments after s, from where the last call stopped. Enough must be left for what this step
  // will create before each read is used; bundles needed later still than what is read give way, but the policy may
  // leave some of them: what gives way has to come back.
  void read_ahead(std::int32_t s) {
    const std::int32_t reach = s + policy_.lookahead_segments();
    const std::int32_t last = wrap_ ? std::min(reach, segments() + s - 1) : std::min(reach, segments() - 1);
    for (ahead_ = std::max(ahead_, s + 1); ahead_ <= last; ++ahead_) {
      if (!read_for(s, ahead_)) return;
    }
  }

  bool read_for(std::int32_t s, std::int32_t j) {
    const bool next_step = j >= segments();
    std::int64_t reserve = uses_.pages_to_create(s, j);
    if (next_step) reserve = std::max(reserve, visit_pages_);
    for (const Use& use : uses(j % segments())) {
      if (use.below || use.creates || memory_.has(use.bundle) || (next_step && !is_state(use.bundle))) continue;
      if (uses_.changes_below(use.bundle, s, j)) continue;  // it is brought back then
      if (!uses_.can_be_read(use.bundle, s, j)) continue;   // it is created before
      const std::int64_t wanted = layout_.pages_of(use.bundle) + reserve;
      if (memory_.available_pages(j) < wanted + left_by_reads() || !make_room(wanted, j)) return false;
      read(use.bundle);
    }
    return true;
  }

  std::int64_t left_by_reads() const {
    return static_cast<std::int64_t>(policy_.share_left_by_reads() * static_cast<double>(memory_.giving_pages()));
  }

  bool make_room(std::int64_t wanted, std::int32_t j) {
    if (memory_.available_pages(j) < wanted) return false;
    while (memory_.free_pages() < wanted) {
      const BundleId victim = memory_.victim(j);
      if (!gives_way(victim, j)) return false;
      evict(victim);
    }
    return true;
  }

  // Whether it may, to a read for segment j; its own next use is later.
  bool gives_way(BundleId bundle, std::int32_t j) {
    if (!memory_.holding(bundle).dirty) return true;
    const std::int64_t away = std::int64_t{memory_.candidate(bundle).next_use} - now_;
    return away >= policy_.written_for_reads() * (j - now_);
  }

  void run(std::int32_t s) {
    const std::int32_t begin = program_.segments.begin[static_cast<std::size_t>(s)];
    const std::int32_t end = program_.segments.begin[static_cast<std::size_t>(s) + 1];
    std::vector<Instr> instrs(static_cast<std::size_t>(end - begin));
    for (std::int32_t i = begin; i < end; ++i) instrs[static_cast<std::size_t>(i - begin)].op = static_cast<OpId>(i);
    for (Instr& instr : instrs) instr.lane = lanes_ != nullptr ? (*lanes_)[static_cast<std::size_t>(s)] : instr.lane;
    for (const Use& use : uses(s)) {
      if (use.below) {
        hand_down(use);
        continue;
      }
      Instr& first = instrs[static_cast<std::size_t>(use.first_op - begin)];
      memory_.begin_use(use, first);
      for (std::int32_t i = use.first_op; i <= use.last_op; ++i) {
        instrs[static_cast<std::size_t>(i - begin)].stays.push_back(memory_.holding(use.bundle).stay);
      }
    }
    const InstrId first_id = emit_runs(instrs, s);
    for (const Use& use : uses(s)) {
      if (use.below) continue;
      Holding& held = memory_.holding(use.bundle);
      const auto last = static_cast<InstrId>(static_cast<std::int32_t>(first_id) + use.last_op - begin);
      held.runs[static_cast<std::size_t>(schedule_.lane_of(last))] = last;
      const bool stays = !use.ends && !use.leaves;
      memory_.touched(use.bundle, s, (use.writes || use.creates) && stays);
      if (!use.writes && !use.creates) continue;
      held.dirty = true;
      held.last_change = last;
      held.changed_in = s;
      if (commits_ && is_committed(use.bundle) && s == uses_.last_change(use.bundle)) write(use.bundle);
    }
    for (const Use& use : uses(s)) {
      if (use.below) continue;
      if (use.ends) {
        memory_.release(use.bundle);
      } else if (use.leaves || policy_.leaves(memory_.candidate(use.bundle))) {
        evict(use.bundle);
      }
    }
  }

  // The number of the first. Ops of different lanes are in order where one makes an output that the other reads.
  InstrId emit_runs(std::vector<Instr>& instrs, std::int32_t s) {
    InstrId first = InstrId::none;
    runs_.resize(lanes_ != nullptr ? static_cast<std::size_t>(program_.segments.begin.back()) : 0, InstrId::none);
    for (Instr& instr : instrs) {
      const std::size_t op = index_of(instr.op);
      const OpId maker = program_.output_makers.empty() ? OpId::none : program_.output_makers[op];
      if (lanes_ != nullptr && maker != OpId::none && schedule_.lane_of(runs_[index_of(maker)]) != instr.lane) {
        instr.after.push_back(runs_[index_of(maker)]);
      }
      const bool here = !instr.stays.empty();  // what runs below does not pace what is read
      const InstrId id = schedule_.emit(std::move(instr), s, When::run);
      if (first == InstrId::none) first = id;
      if (here) newest_run_ = id;
      if (lanes_ != nullptr) runs_[op] = id;
    }
    return first;
  }

  // Makes the boundary hold exactly these bundles, and none of them dirtier.
  void meet(const Residents& exit) {
    for (const BundleId bundle : memory_.bundles()) {
      const auto same = std::find_if(exit.begin(), exit.end(), [&](const Held& held) { return held.bundle == bundle; });
      if (same == exit.end()) {
        evict(bundle);
      } else if (!same->dirty && memory_.holding(bundle).dirty) {
        write(bundle);
      }
    }
    for (const Held& held : exit) {
      if (!memory_.has(held.bundle) && !program_.dead_on_exit[index_of(held.bundle)]) read(held.bundle);
    }
  }

  // The copies of these are as new as memory when the plan ends.
  void clean(const std::vector<bool>& bundles) {
    for (const BundleId bundle : memory_.bundles()) {
      if (bundles[index_of(bundle)] && memory_.holding(bundle).dirty) write(bundle);
    }
  }

  // Saving and loading bring any state bundles into memory between steps.
  void make_room_at_boundary() {
    while (memory_.free_pages() < visit_pages_) evict(memory_.victim(-1));
  }

  // What the step did not change, and found in memory newer than on disk, is still to be written.
  void commit() {
    for (const BundleId bundle : memory_.bundles()) {
      if (is_committed(bundle) && memory_.holding(bundle).dirty) write(bundle);
    }
    schedule_.emit({Instr::Kind::commit, LaneId::write, OpId::none, {}, {}, {}}, segments(), When::write);
  }

  void leave() {
    for (const BundleId bundle : memory_.bundles()) {
      SPILLWAY_CHECK(is_state(bundle), "local bundle {} outlives the step", index_of(bundle));
      plan_.exit.stays.push_back(memory_.holding(bundle).stay);
      plan_.exit.dirty.push_back(memory_.holding(bundle).dirty);
    }
  }

  void count_slots() {
    for (std::size_t b = static_cast<std::size_t>(layout_.state_bundles); b < layout_.bundles.size(); ++b) {
      const auto bundle = static_cast<BundleId>(b);
      if (memory_.holding(bundle).spilled) plan_.local_slots += layout_.pages_of(bundle);
    }
  }

  const Layout& layout_;
  const ProgramLayout& program_;
  const Uses& uses_;
  const VictimPolicy& policy_;
  const std::int64_t visit_pages_;
  const bool unplaced_;
  Schedule schedule_;
  Plan plan_;
  Residency memory_;
  const std::vector<LaneId>* lanes_ = nullptr;
  bool commits_ = false;
  bool wrap_ = false;
  std::vector<bool> exit_;               // by bundle: it may be in memory at the end
  std::vector<BundleId> changed_below_;  // by the segment that ran last
  std::vector<BundleId> coming_back_;    // by the one before that ran below
  std::vector<InstrId> runs_;            // by op, where there are several lanes
  std::int32_t now_ = 0;
  InstrId newest_run_ = InstrId::none;
  std::int32_t ahead_ = 0;  // reads for all segments before it are issued, or not to be made ahead
};

}  // namespace

Residents residents_of(const Plan& plan, MemoryId memory) {
  Residents residents = residents_at(plan, plan.exit, memory);
  for (const Held& entry : residents_at(plan, plan.entry, memory)) {
    const auto at =
        std::find_if(residents.begin(), residents.end(), [&](const Held& held) { return held.bundle == entry.bundle; });
    SPILLWAY_CHECK(at != residents.end(), "the plan cannot follow itself");
    at->dirty = at->dirty || entry.dirty;
  }
  return residents;
}

Plan make_plan(const Layout& layout, std::int32_t program, std::int64_t pages, const PlanRequest& request) {
  const Uses uses(layout, program);
  const std::unique_ptr<VictimPolicy> policy = make_policy(request, layout, program, pages, uses);
  const auto plan_with = [&](const Residents& entry, const Residents* exit) {
    Planner planner(layout, program, pages, uses, *policy, request);
    planner.make(entry, exit, request);
    return planner.finish();
  };
  if (request.entry != nullptr) {
    return plan_with(*request.entry, request.exit != nullptr ? request.exit : request.entry);
  }
  // A step that follows itself: start from nothing in memory and let the boundary settle; if it goes round in a longer
  // circle, hold it to the last one seen.
  constexpr int attempts = 6;
  const auto& dead = layout.programs[static_cast<std::size_t>(program)].dead_on_entry;
  Residents boundary;
  const bool holds_all = pages >= in_memory_pages(layout, program);
  for (std::int32_t b = 0; b < layout.state_bundles && holds_all; ++b) {
    if (!dead[static_cast<std::size_t>(b)]) boundary.push_back({static_cast<BundleId>(b), true});
  }
  for (int i = 0; i < attempts; ++i) {
    Planner planner(layout, program, pages, uses, *policy, request);
    Residents next = planner.make(boundary, nullptr, request);
    std::erase_if(next, [&](const Held& held) { return dead[index_of(held.bundle)]; });
    if (next == boundary) return planner.finish();
    boundary = std::move(next);
  }
  return plan_with(boundary, &boundary);
}

}  // namespace spillway
