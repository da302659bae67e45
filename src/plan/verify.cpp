// The verifier: a second reading of a plan that shares nothing with the planner but its data. It walks the instructions
// once, carrying for each what is known to be done when it starts, and checks every access against that. This file has
// the walk, and who may touch which page when; verify_versions.cpp what the bytes are; verify_boundary.cpp both ends.
#include <algorithm>

#include "base/error.h"
#include "plan/verifier.h"

namespace spillway {

std::string Verifier::run() {
  if (!enter()) return error_;
  std::array<std::int32_t, lane_count> position{};
  std::vector<Clock> done(plan_.instrs.size());
  std::array<Clock, lane_count> started{};
  std::array<Clock, lane_count> finished{};
  std::int32_t next_op = 0;
  for (std::size_t i = 0; i < plan_.instrs.size(); ++i) {
    const Instr& instr = plan_.instrs[i];
    const auto lane = static_cast<std::size_t>(instr.lane);
    const auto at = static_cast<std::size_t>(position[lane]);
    if (at >= plan_.lanes[lane].size() || index_of(plan_.lanes[lane][at]) != i) {
      return fmt::format("instruction {} is not next in its lane", i);
    }
    Clock start = started[lane];
    const bool alone = runs_ops(instr.lane) || instr.kind == Instr::Kind::commit;
    if (alone) start = join(start, finished[lane]);
    for (const InstrId wait : instr.after) {
      if (index_of(wait) >= i)
        return fmt::format("instruction {} waits for {}, which is not before it", i, index_of(wait));
      start = join(start, done[index_of(wait)]);
    }
    started[lane] = start;
    if (instr.kind == Instr::Kind::run) {
      if (static_cast<std::int32_t>(index_of(instr.op)) != next_op) {
        return fmt::format("op {} runs out of order", index_of(instr.op));
      }
      const auto& segments = layout_.programs[static_cast<std::size_t>(plan_.program)].segments;
      while (next_op >= segments.begin[segment_ + 1]) ++segment_;
      ++next_op;
    }
    if (!check(i, start, position[lane])) return error_;
    ++position[lane];
    done[i] = join(start, finished[lane]);
    done[i][lane] = position[lane];
    finished[lane] = done[i];
  }
  if (next_op != static_cast<std::int32_t>(program_.ops.size())) return "not every op runs";
  for (std::size_t lane = 0; lane < lane_count; ++lane) {
    if (position[lane] == std::ssize(plan_.lanes[lane])) continue;
    return fmt::format("lane {} goes on after its last instruction", name_of(static_cast<LaneId>(lane)));
  }
  if (!leave()) return error_;
  return {};
}

bool Verifier::has_page(const Stay& stay, PageId page) const {
  const auto number = static_cast<std::int64_t>(page);
  return stay.memory == MemoryId::host ? number >= 0 && number < plan_.pages
                                       : number >= plan_.pages && number < plan_.all_pages();
}

// Gives the stay its pages: whatever held them before must be done with.
bool Verifier::own(StayId id, const Clock& start, std::string_view who) {
  const Stay& stay = plan_.stays[index_of(id)];
  if (static_cast<std::int64_t>(stay.pages.size()) != layout_.pages_of(stay.bundle)) {
    return fail("stay {} has {} pages", index_of(id), stay.pages.size());
  }
  for (const PageId page : stay.pages) {
    if (!has_page(stay, page)) return fail("page {} is beyond the budget", index_of(page));
    StayId& owner = owner_[index_of(page)];
    if (owner == id) return fail("stay {} has page {} already", index_of(id), index_of(page));
    if (owner != StayId::none) {
      const Clock& accessed = stays_[index_of(owner)].accessed;
      for (std::size_t lane = 0; lane < lane_count; ++lane) {
        if (accessed[lane] > start[lane]) {
          return fail("{} takes page {} while {} instruction {} may still use it", who, index_of(page),
                      name_of(static_cast<LaneId>(lane)), accessed[lane] - 1);
        }
      }
      if (residence(owner).current == owner) residence(owner).version = -1;
      stays_[index_of(owner)].begun = false;
    }
    owner = id;
  }
  return true;
}

// A bundle has one address in a memory, and the executor one place where it lies, so it comes to other pages only when
// nothing can touch those it had. (One that came back elsewhere has a newer stay; losing a page of the old one is then
// nothing.)
bool Verifier::leave_address(StayId id, const Clock& start, const std::string& who) {
  const StayId old = residence(id).current;
  if (old == StayId::none) return true;
  const Clock& accessed = stays_[index_of(old)].accessed;
  for (std::size_t lane = 0; lane < lane_count; ++lane) {
    if (accessed[lane] > start[lane]) {
      return fail("{} moves bundle {} to other pages while {} instruction {} may still use it", who,
                  index_of(plan_.stays[index_of(id)].bundle), name_of(static_cast<LaneId>(lane)), accessed[lane] - 1);
    }
  }
  return true;
}

bool Verifier::check(std::size_t i, const Clock& start, std::int32_t position) {
  const Instr& instr = plan_.instrs[i];
  const std::string who = fmt::format("{} instruction {}", name_of(instr.lane), position);
  if (!check_form(instr, who) || !check_firsts(instr, start, position, who)) return false;
  for (const StayId id : instr.begins) {
    if (!leave_address(id, start, who) || !own(id, start, who)) return false;
    stays_[index_of(id)] = {true, {}, std::nullopt};
    BundleLog& bundle = bundle_of(id);
    if (instr.kind == Instr::Kind::run) bundle.dead = true, bundle.values.clear();
    residence(id).current = id;
    residence(id).version = instr.kind == Instr::Kind::run    ? bundle.version
                            : instr.kind == Instr::Kind::read ? bundle.on_disk
                                                              : -1;
  }
  for (const StayId id : instr.stays) {
    const bool runs = instr.kind == Instr::Kind::run;
    const bool writes = runs ? writes_to(instr, id) : fills(instr.kind, plan_.stays[index_of(id)].memory);
    if (!access(id, start, static_cast<std::size_t>(instr.lane), position, writes, who)) return false;
  }
  switch (instr.kind) {
    case Instr::Kind::run: return check_run(instr, start, position, who);
    case Instr::Kind::read: return check_disk(instr, start, position, who) && check_read(instr, who);
    case Instr::Kind::write: return check_disk(instr, start, position, who) && check_write(instr, who);
    case Instr::Kind::commit: return check_commit(instr, who);
    case Instr::Kind::up: return check_copy(instr.stays[0], instr.stays[1], MemoryId::host, who);
    case Instr::Kind::down: return check_copy(instr.stays[0], instr.stays[1], MemoryId::device, who);
  }
  return true;
}

LaneId Verifier::lane_of(Instr::Kind kind) {
  switch (kind) {
    case Instr::Kind::run: return LaneId::compute;
    case Instr::Kind::read: return LaneId::read;
    case Instr::Kind::write:
    case Instr::Kind::commit: return LaneId::write;
    case Instr::Kind::up: return LaneId::up;
    case Instr::Kind::down: return LaneId::down;
  }
  return LaneId::compute;
}

// It stands in its lane, and names the stays that it begins and stays of the memories that it goes between.
bool Verifier::check_form(const Instr& instr, const std::string& who) {
  const bool on_host = instr.kind == Instr::Kind::run && instr.lane == LaneId::update;
  if (on_host && (plan_.device_pages == 0 || !program_.ops[index_of(instr.op)].spec->anywhere)) {
    return fail("{} runs op {} on another processor", who, index_of(instr.op));
  }
  if (!on_host && instr.lane != lane_of(instr.kind)) return fail("{} stands in the wrong lane", who);
  for (const StayId id : instr.begins) {
    if (std::find(instr.stays.begin(), instr.stays.end(), id) != instr.stays.end()) continue;
    return fail("{} begins stay {} and does not touch it", who, index_of(id));
  }
  const auto lies_in = [&](StayId id, MemoryId memory) { return plan_.stays[index_of(id)].memory == memory; };
  if (is_copy(instr.kind)) {
    const bool fits = instr.stays.size() == 2 && lies_in(instr.stays[0], MemoryId::device) &&
                      lies_in(instr.stays[1], MemoryId::host) &&
                      plan_.stays[index_of(instr.stays[0])].bundle == plan_.stays[index_of(instr.stays[1])].bundle;
    return fits || fail("{} does not copy between two stays of a bundle", who);
  }
  if (is_of_disk(instr.kind) && instr.stays.size() != 1) return fail("{} moves {} stays", who, instr.stays.size());
  if (is_direct(plan_, instr)) {
    const BundleId bundle = plan_.stays[index_of(instr.stays.front())].bundle;
    const bool sums = instr.kind == Instr::Kind::write && layout_.bundles[index_of(bundle)].state;
    return !sums || fail("{} writes state past the host's memory", who);
  }
  const MemoryId memory = plan_.memory_of(instr.lane);
  for (const StayId id : instr.stays) {
    if (!lies_in(id, memory)) return fail("{} touches stay {} in another memory", who, index_of(id));
  }
  return true;
}

// Whatever earlier plans may have left under way on its bundles and pages is waited for by the instruction itself, or
// was by one that has started before.
bool Verifier::check_firsts(const Instr& instr, const Clock& start, std::int32_t position, const std::string& who) {
  const auto lane = static_cast<std::size_t>(instr.lane);
  for (const StayId id : instr.begins) {
    for (const PageId page : plan_.stays[index_of(id)].pages) {
      if (!has_page(plan_.stays[index_of(id)], page)) return fail("page {} is beyond the budget", index_of(page));
      const StayId owner = owner_[index_of(page)];
      const bool met =
          owner != StayId::none && (!entered_.contains(owner) || residence(owner).changed.holds(lane, start));
      if (!instr.first && !met) return fail("{} may meet an earlier plan on page {}", who, index_of(page));
    }
  }
  for (const StayId id : instr.stays) {
    const BundleId of = plan_.stays[index_of(id)].bundle;
    ResidenceLog& log = residence(id);
    Guard& moved_before = bundles_[index_of(of)].moved_before;
    const bool begins = std::find(instr.begins.begin(), instr.begins.end(), id) != instr.begins.end();
    const bool moves = is_of_disk(instr.kind);
    const bool runs = instr.kind == Instr::Kind::run;
    const bool changes = begins || (runs ? segment_writes(of) : fills(instr.kind, plan_.stays[index_of(id)].memory));
    if (instr.first) {
      log.seen.add(lane, position);
      if (changes) log.changed.add(lane, position);
      if (moves) moved_before.add(lane, position);
    }
    const Guard& guard = changes ? log.changed : log.seen;
    if (!guard.holds(lane, start) || (moves && !moved_before.holds(lane, start))) {
      return fail("{} may meet an earlier plan on bundle {}", who, index_of(of));
    }
  }
  return true;
}

// Whether the segment that is running changes the bundle; across plans, all runs of a segment count as its changes.
bool Verifier::segment_writes(BundleId bundle) const {
  const auto& uses = layout_.programs[static_cast<std::size_t>(plan_.program)].uses[segment_];
  return std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return use.bundle == bundle && use.writes; });
}

bool Verifier::access(StayId id, const Clock& start, std::size_t lane, std::int32_t position, bool writes,
                      const std::string& who) {
  StayLog& log = stays_[index_of(id)];
  if (!log.begun || residence(id).current != id) {
    return fail("{} touches stay {} outside its time", who, index_of(id));
  }
  for (const PageId page : plan_.stays[index_of(id)].pages) {
    if (owner_[index_of(page)] != id) return fail("{} touches page {} of another stay", who, index_of(page));
  }
  if (log.last_write && start[log.last_write->first] <= log.last_write->second) {
    return fail("{} does not wait for what wrote stay {}", who, index_of(id));
  }
  for (std::size_t other = 0; other < lane_count && writes; ++other) {
    if (log.accessed[other] > start[other]) return fail("{} writes stay {} under another access", who, index_of(id));
  }
  if (writes) log.last_write = {lane, position};
  log.accessed[lane] = position + 1;
  return true;
}

std::string verify(const Plan& plan, const Layout& layout, const Program& program) {
  return Verifier(plan, layout, program).run();
}

}  // namespace spillway
