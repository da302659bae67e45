// The verifier: a second reading of a plan that shares nothing with the planner but its data. It walks the instructions
// once, carrying for each what is known to be done when it starts, and checks every access against that.
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "plan/plan.h"
#include "program/spec.h"

namespace spillway {
namespace {

// For each lane, how many of its instructions are known to be done.
using Clock = std::array<std::int32_t, lane_count>;

Clock join(const Clock& a, const Clock& b) {
  Clock out;
  for (std::size_t i = 0; i < lane_count; ++i) out[i] = std::max(a[i], b[i]);
  return out;
}

// What has touched a stay.
struct StayLog {
  bool begun = false;
  Clock accessed{};                                       // per lane, one past the last access
  std::optional<std::pair<std::size_t, int>> last_write;  // lane and position
};

// Of each lane, the first instruction known to have waited for what earlier plans left under way.
class Guard {
 public:
  void add(std::size_t lane, std::int32_t position) { firsts_[lane] = std::min(firsts_[lane], position); }
  // Whether one of them has started when an instruction of `lane` starts for which `start` is done.
  bool holds(std::size_t lane, const Clock& start) const {
    if (firsts_[lane] != none) return true;
    for (std::size_t other = 0; other < lane_count; ++other) {
      if (firsts_[other] < start[other]) return true;
    }
    return false;
  }

 private:
  static constexpr std::int32_t none = std::numeric_limits<std::int32_t>::max();
  Clock firsts_ = {none, none, none, none, none};
};

struct BundleLog {
  std::int64_t version = 0;                                         // of the newest bytes
  std::int64_t on_disk = 0;                                         // -1: nothing there
  Clock moved{};                                                    // per lane, one past the last move of the disk
  std::map<std::int64_t, std::pair<std::int64_t, ValueId>> values;  // begin -> end, value: what the newest bytes hold
  bool dead = false;   // holds no value that the Program may read as it found it
  Guard moved_before;  // moves of its copy on disk in earlier plans are waited for, by a move
};

// A bundle in one memory.
struct ResidenceLog {
  std::int64_t version = -1;      // of the current stay
  StayId current = StayId::none;  // the last that was begun
  Guard seen;                     // what wrote it in earlier plans is waited for
  Guard changed;                  // so is every access to it
};

class Verifier {
 public:
  Verifier(const Plan& plan, const Layout& layout, const Program& program)
      : plan_(plan),
        layout_(layout),
        program_(program),
        places_(layout.programs[static_cast<std::size_t>(plan.program)].places),
        stays_(plan.stays.size()),
        bundles_(layout.bundles.size()),
        residences_(memory_count * layout.bundles.size()),
        owner_(static_cast<std::size_t>(plan.all_pages()), StayId::none) {}

  std::string run() {
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
      const bool alone = instr.lane == LaneId::compute || instr.kind == Instr::Kind::commit;
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
    if (!leave()) return error_;
    return {};
  }

 private:
  template <typename... Args>
  bool fail(fmt::format_string<Args...> format, Args&&... args) {
    error_ = fmt::format(format, std::forward<Args>(args)...);
    return false;
  }

  bool enter() {
    if (plan_.entry.dirty.size() != plan_.entry.stays.size() || plan_.exit.dirty.size() != plan_.exit.stays.size()) {
      return fail("a boundary does not say which of its bundles are dirty");
    }
    const auto& dead = layout_.programs[static_cast<std::size_t>(plan_.program)].dead_on_entry;
    for (std::size_t b = 0; b < bundles_.size(); ++b) {
      bundles_[b].dead = b >= static_cast<std::size_t>(layout_.state_bundles) || dead[b];
      if (bundles_[b].dead) bundles_[b].on_disk = -1;
    }
    for (std::size_t i = 0; i < plan_.entry.stays.size(); ++i) {
      const StayId id = plan_.entry.stays[i];
      if (!own(id, Clock{}, "the entry")) return false;
      residence(id).current = id;
      residence(id).version = 0;
      if (plan_.entry.dirty[i]) bundle_of(id).on_disk = -1;
      stays_[index_of(id)].begun = true;
      entered_.insert(id);
    }
    for (std::size_t i = 0; i < plan_.entry.stays.size(); ++i) {  // what the device may hold newer is old in the host
      const Stay& stay = plan_.stays[index_of(plan_.entry.stays[i])];
      if (stay.memory == MemoryId::device && plan_.entry.dirty[i]) at(MemoryId::host, stay.bundle).version = -1;
    }
    return true;
  }

  ResidenceLog& at(MemoryId memory, BundleId bundle) { return residences_[index_in(layout_, {memory, bundle})]; }
  ResidenceLog& residence(StayId id) { return residences_[index_in(layout_, residence_of(plan_.stays[index_of(id)]))]; }
  BundleLog& bundle_of(StayId id) { return bundles_[index_of(plan_.stays[index_of(id)].bundle)]; }

  bool has_page(const Stay& stay, PageId page) const {
    const auto number = static_cast<std::int64_t>(page);
    return stay.memory == MemoryId::host ? number >= 0 && number < plan_.pages
                                         : number >= plan_.pages && number < plan_.all_pages();
  }

  // Gives the stay its pages: whatever held them before must be done with.
  bool own(StayId id, const Clock& start, std::string_view who) {
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

  // A bundle has one address in a memory, so it comes to other pages only when nothing can touch those it had. (One
  // that came back elsewhere has a newer stay; losing a page of the old one is then nothing.)
  bool leave_address(StayId id, const Clock& start, const std::string& who) {
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

  bool check(std::size_t i, const Clock& start, std::int32_t position) {
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
      case Instr::Kind::run: return check_run(instr, who);
      case Instr::Kind::read: return check_disk(instr, start, position, who) && check_read(instr, who);
      case Instr::Kind::write: return check_disk(instr, start, position, who) && check_write(instr, who);
      case Instr::Kind::commit: return check_commit(instr, who);
      case Instr::Kind::up: return check_copy(instr.stays[0], instr.stays[1], MemoryId::host, who);
      case Instr::Kind::down: return check_copy(instr.stays[0], instr.stays[1], MemoryId::device, who);
    }
    return true;
  }

  static LaneId lane_of(Instr::Kind kind) {
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

  // It stands in its lane and names stays of the memories that it goes between.
  bool check_form(const Instr& instr, const std::string& who) {
    if (instr.lane != lane_of(instr.kind)) return fail("{} stands in the wrong lane", who);
    const auto lies_in = [&](StayId id, MemoryId memory) { return plan_.stays[index_of(id)].memory == memory; };
    if (is_copy(instr.kind)) {
      const bool fits = instr.stays.size() == 2 && lies_in(instr.stays[0], MemoryId::device) &&
                        lies_in(instr.stays[1], MemoryId::host) &&
                        plan_.stays[index_of(instr.stays[0])].bundle == plan_.stays[index_of(instr.stays[1])].bundle;
      return fits || fail("{} does not copy between two stays of a bundle", who);
    }
    if (is_of_disk(instr.kind) && instr.stays.size() != 1) return fail("{} moves {} stays", who, instr.stays.size());
    const MemoryId memory = instr.kind == Instr::Kind::run ? plan_.compute_memory() : MemoryId::host;
    for (const StayId id : instr.stays) {
      if (!lies_in(id, memory)) return fail("{} touches stay {} in another memory", who, index_of(id));
    }
    return true;
  }

  // Whatever earlier plans may have left under way on its bundles and pages is waited for by the instruction itself, or
  // was by one that has started before.
  bool check_firsts(const Instr& instr, const Clock& start, std::int32_t position, const std::string& who) {
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
  bool segment_writes(BundleId bundle) const {
    const auto& uses = layout_.programs[static_cast<std::size_t>(plan_.program)].uses[segment_];
    return std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return use.bundle == bundle && use.writes; });
  }

  bool writes_to(const Instr& instr, StayId id) const {
    const BundleId bundle = plan_.stays[index_of(id)].bundle;
    for (const Operand& write : program_.ops[index_of(instr.op)].writes) {
      if (places_[index_of(write.first)].bundle == bundle) return true;
    }
    return false;
  }

  bool access(StayId id, const Clock& start, std::size_t lane, std::int32_t position, bool writes,
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

  // A copy on disk is written by one move at a time, and read by none meanwhile.
  bool check_disk(const Instr& instr, const Clock& start, std::int32_t position, const std::string& who) {
    const BundleId id = plan_.stays[index_of(instr.stays.front())].bundle;
    Clock& moved = bundles_[index_of(id)].moved;
    for (const LaneId lane : {LaneId::read, LaneId::write}) {
      const auto l = static_cast<std::size_t>(lane);
      if ((instr.kind == Instr::Kind::write || lane == LaneId::write) && moved[l] > start[l]) {
        return fail("{} does not wait for {} instruction {} of bundle {}", who, name_of(lane), moved[l] - 1,
                    index_of(id));
      }
    }
    moved[static_cast<std::size_t>(instr.lane)] = position + 1;
    return true;
  }

  bool check_read(const Instr& instr, const std::string& who) {
    const BundleId id = plan_.stays[index_of(instr.stays.front())].bundle;
    if (bundles_[index_of(id)].on_disk < 0) return fail("{} reads bundle {}, which is not on disk", who, index_of(id));
    return true;
  }

  bool check_write(const Instr& instr, const std::string& who) {
    const BundleId id = plan_.stays[index_of(instr.stays.front())].bundle;
    BundleLog& bundle = bundles_[index_of(id)];
    if (at(MemoryId::host, id).version != bundle.version) {
      return fail("{} writes an old version of bundle {}", who, index_of(id));
    }
    bundle.on_disk = bundle.version;
    return true;
  }

  // What is copied down is the newest; what comes up must be by the time that something uses it.
  bool check_copy(StayId above, StayId below, MemoryId from, const std::string& who) {
    const bool up = from == MemoryId::host;
    const std::int64_t version = residence(up ? below : above).version;
    const std::size_t bundle = index_of(plan_.stays[index_of(above)].bundle);
    if (version < 0) return fail("{} copies bundle {}, which is not there", who, bundle);
    if (!up && version != bundles_[bundle].version) return fail("{} copies an old version of bundle {}", who, bundle);
    residence(up ? above : below).version = version;
    return true;
  }

  // All writes before it in its lane are done, so what was written last of each bundle is what the commit holds.
  bool check_commit(const Instr& instr, const std::string& who) {
    if (instr.lane != LaneId::write || !committed_.empty()) return fail("{} is a commit out of place", who);
    for (std::int32_t b = 0; b < layout_.state_bundles; ++b) {
      const BundleLog& bundle = bundles_[static_cast<std::size_t>(b)];
      committed_.push_back(bundle.version);
      if (!layout_.bundles[static_cast<std::size_t>(b)].committed || bundle.on_disk == bundle.version) continue;
      return fail("{} commits bundle {}, which is old on disk", who, b);
    }
    return true;
  }

  bool check_run(const Instr& instr, const std::string& who) {
    const Op& op = program_.ops[index_of(instr.op)];
    const auto touch = [&](const Operand& operand, bool writes) {
      if (!operand.exists()) return true;
      for (std::size_t k = 0; k < static_cast<std::size_t>(operand.count); ++k) {
        const auto value = static_cast<ValueId>(index_of(operand.first) + k);
        if (!check_value(instr, value, writes, who)) return false;
      }
      return true;
    };
    for (const Operand& read : op.reads) {
      if (!touch(read, false)) return false;
    }
    std::vector<BundleId> changed;
    for (const Operand& write : op.writes) {
      if (!touch(write, true)) return false;
      const BundleId bundle = places_[index_of(write.first)].bundle;
      if (bundle != BundleId::none && std::find(changed.begin(), changed.end(), bundle) == changed.end()) {
        changed.push_back(bundle);
      }
    }
    for (const BundleId id : changed) {
      at(plan_.compute_memory(), id).version = ++bundles_[index_of(id)].version;
    }
    return true;
  }

  bool check_value(const Instr& instr, ValueId id, bool writes, const std::string& who) {
    const Place& place = places_[index_of(id)];
    if (place.bundle == BundleId::none) return true;
    BundleLog& bundle = bundles_[index_of(place.bundle)];
    const bool named = std::any_of(instr.stays.begin(), instr.stays.end(),
                                   [&](StayId stay) { return plan_.stays[index_of(stay)].bundle == place.bundle; });
    if (!named) return fail("{} touches value %{} without naming its stay", who, index_of(id));
    if (at(plan_.compute_memory(), place.bundle).version != bundle.version) {
      return fail("{} sees an old version of bundle {}", who, index_of(place.bundle));
    }
    const std::int64_t end = place.offset_bytes + program_.value(id).type.bytes();
    if (!writes) return check_holds(bundle, id, place.offset_bytes, end, who);
    auto next = bundle.values.lower_bound(place.offset_bytes);
    if (next != bundle.values.begin() && std::prev(next)->second.first > place.offset_bytes) --next;
    while (next != bundle.values.end() && next->first < end) next = bundle.values.erase(next);
    bundle.values[place.offset_bytes] = {end, id};
    return true;
  }

  bool check_holds(const BundleLog& bundle, ValueId id, std::int64_t begin, std::int64_t end, const std::string& who) {
    const auto held = bundle.values.find(begin);
    if (held != bundle.values.end() && held->second == std::pair(end, id)) return true;
    if (held == bundle.values.end() && !bundle.dead && program_.value(id).kind == ValueKind::state_in) return true;
    return fail("{} reads value %{}, whose bytes hold something else", who, index_of(id));
  }

  bool leave() {
    // By memory and state bundle: held at the exit; what is below a memory is new where it is held, or on disk.
    std::vector<bool> held(residences_.size(), false);
    const auto below_is_new = [&](MemoryId memory, BundleId bundle) {
      const bool in_host = memory == MemoryId::device && held[index_in(layout_, {MemoryId::host, bundle})];
      return in_host || bundles_[index_of(bundle)].on_disk == bundles_[index_of(bundle)].version;
    };
    for (const StayId id : plan_.exit.stays) {
      const BundleId of = plan_.stays[index_of(id)].bundle;
      if (!layout_.bundles[index_of(of)].state) return fail("local bundle {} is held at the exit", index_of(of));
      held[index_in(layout_, residence_of(plan_.stays[index_of(id)]))] = true;
      for (const PageId page : plan_.stays[index_of(id)].pages) {
        if (owner_[index_of(page)] != id) return fail("bundle {} has lost a page at the exit", index_of(of));
      }
      if (residence(id).version != bundle_of(id).version) return fail("bundle {} is old at the exit", index_of(of));
    }
    for (std::size_t i = 0; i < plan_.exit.stays.size(); ++i) {
      const Stay& stay = plan_.stays[index_of(plan_.exit.stays[i])];
      if (plan_.exit.dirty[i] || below_is_new(stay.memory, stay.bundle)) continue;
      return fail("bundle {} is dirty at the exit", index_of(stay.bundle));
    }
    const auto& dead = layout_.programs[static_cast<std::size_t>(plan_.program)].dead_on_exit;
    for (std::int32_t b = 0; b < layout_.state_bundles; ++b) {
      const auto id = static_cast<BundleId>(b);
      const BundleLog& bundle = bundles_[index_of(id)];
      if (!committed_.empty() && layout_.bundles[index_of(id)].committed &&
          committed_[index_of(id)] != bundle.version) {
        return fail("bundle {} changes after the commit", b);
      }
      if (dead[index_of(id)] || held[index_in(layout_, {MemoryId::host, id})]) continue;
      if (held[index_in(layout_, {MemoryId::device, id})] || bundle.on_disk == bundle.version) continue;
      return fail("bundle {} is old on disk at the exit", b);
    }
    return true;
  }

  const Plan& plan_;
  const Layout& layout_;
  const Program& program_;
  const std::vector<Place>& places_;
  std::vector<StayLog> stays_;
  std::vector<BundleLog> bundles_;
  std::vector<ResidenceLog> residences_;  // see index_in
  std::vector<StayId> owner_;             // by page
  std::set<StayId> entered_;              // held at the entry
  std::size_t segment_ = 0;               // of the last run
  std::vector<std::int64_t> committed_;   // by state bundle: the version at the commit
  std::string error_;
};

}  // namespace

std::string verify(const Plan& plan, const Layout& layout, const Program& program) {
  return Verifier(plan, layout, program).run();
}

std::string verify_follows(const Plan& before, const Plan& after, const Layout& layout) {
  std::map<Residence, bool> left;  // dirty
  for (std::size_t i = 0; i < before.exit.stays.size(); ++i) {
    left[residence_of(before.stays[index_of(before.exit.stays[i])])] = before.exit.dirty[i];
  }
  for (std::size_t i = 0; i < after.entry.stays.size(); ++i) {
    const Residence entry = residence_of(after.stays[index_of(after.entry.stays[i])]);
    const auto found = left.find(entry);
    if (found == left.end()) return fmt::format("bundle {} is not left in memory", index_of(entry.bundle));
    if (found->second && !after.entry.dirty[i]) return fmt::format("bundle {} is left dirty", index_of(entry.bundle));
    left.erase(found);
  }
  const auto& dead = layout.programs[static_cast<std::size_t>(after.program)].dead_on_entry;
  const std::vector<bool> dead_below = dead_below_on_entry(after, layout);
  for (const auto& [what, dirty] : left) {
    const std::size_t b = index_of(what.bundle);
    const bool useless = dead[b] || (what.memory == MemoryId::host && dead_below[b]);
    if (dirty && !useless) return fmt::format("bundle {} would be lost", b);
  }
  return {};
}

std::string dump(const Plan& plan, const Layout& layout, const Program& program) {
  std::string text = fmt::format("{} pages, entry {} stays, exit {} stays\n", plan.pages, plan.entry.stays.size(),
                                 plan.exit.stays.size());
  if (plan.device_pages > 0) text += fmt::format("{} pages of the device follow\n", plan.device_pages);
  for (std::size_t i = 0; i < plan.instrs.size(); ++i) {
    const Instr& instr = plan.instrs[i];
    text += fmt::format("{:6} {:7} ", i, name_of(instr.lane));
    if (instr.kind == Instr::Kind::run) {
      const Op& op = program.ops[index_of(instr.op)];
      text += fmt::format("{} ({})", op.spec->name, describe(op.label));
    } else if (instr.kind == Instr::Kind::commit) {
      text += "commit";
    } else {
      const Stay& stay = plan.stays[index_of(instr.stays.front())];
      text += fmt::format("bundle {} {} bytes", index_of(stay.bundle), layout.bundles[index_of(stay.bundle)].bytes);
    }
    for (const StayId id : instr.begins) {
      text += fmt::format(" +{}[", index_of(id));
      for (const PageId page : plan.stays[index_of(id)].pages) text += fmt::format(" {}", index_of(page));
      text += " ]";
    }
    for (const InstrId wait : instr.after) text += fmt::format(" <{}", index_of(wait));
    if (instr.first) text += " first";
    text += "\n";
  }
  return text;
}

}  // namespace spillway
