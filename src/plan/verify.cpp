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
  Clock firsts_ = {none, none, none};
};

struct BundleLog {
  std::int64_t version = 0;                                         // of the newest bytes
  std::int64_t on_disk = 0;                                         // -1: nothing there
  std::int64_t in_memory = -1;                                      // of the current stay
  Clock moved{};                                                    // per lane, one past the last move
  std::map<std::int64_t, std::pair<std::int64_t, ValueId>> values;  // begin -> end, value: what the newest bytes hold
  bool dead = false;   // holds no value that the Program may read as it found it
  Guard seen;          // what wrote its memory in earlier plans is waited for
  Guard changed;       // so is every access to its memory
  Guard moved_before;  // so are moves of its copy, by a move
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
        owner_(static_cast<std::size_t>(plan.pages), StayId::none) {}

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
      current_[plan_.stays[index_of(id)].bundle] = id;
      BundleLog& bundle = bundles_[index_of(plan_.stays[index_of(id)].bundle)];
      bundle.in_memory = 0;
      if (plan_.entry.dirty[i]) bundle.on_disk = -1;
      stays_[index_of(id)].begun = true;
      entered_.insert(id);
    }
    return true;
  }

  // Gives the stay its pages: whatever held them before must be done with.
  bool own(StayId id, const Clock& start, std::string_view who) {
    const Stay& stay = plan_.stays[index_of(id)];
    if (static_cast<std::int64_t>(stay.pages.size()) != layout_.pages_of(stay.bundle)) {
      return fail("stay {} has {} pages", index_of(id), stay.pages.size());
    }
    for (const PageId page : stay.pages) {
      if (index_of(page) >= owner_.size()) return fail("page {} is beyond the budget", index_of(page));
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
        BundleLog& old = bundles_[index_of(plan_.stays[index_of(owner)].bundle)];
        if (lost_page_matters(owner)) old.in_memory = -1;
        stays_[index_of(owner)].begun = false;
      }
      owner = id;
    }
    return true;
  }

  // A bundle has one address, so it comes to other pages only when nothing can touch those it had.
  bool leave_address(BundleId bundle, const Clock& start, const std::string& who) {
    const auto old = current_.find(bundle);
    if (old == current_.end()) return true;
    const Clock& accessed = stays_[index_of(old->second)].accessed;
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      if (accessed[lane] > start[lane]) {
        return fail("{} moves bundle {} to other pages while {} instruction {} may still use it", who, index_of(bundle),
                    name_of(static_cast<LaneId>(lane)), accessed[lane] - 1);
      }
    }
    return true;
  }

  // A bundle that came back elsewhere has a newer stay; losing a page of the old one is then nothing.
  bool lost_page_matters(StayId old) const {
    const BundleId bundle = plan_.stays[index_of(old)].bundle;
    const auto found = current_.find(bundle);
    return found == current_.end() || found->second == old;
  }

  bool check(std::size_t i, const Clock& start, std::int32_t position) {
    const Instr& instr = plan_.instrs[i];
    const std::string who = fmt::format("{} instruction {}", name_of(instr.lane), position);
    if (!check_firsts(instr, start, position, who)) return false;
    for (const StayId id : instr.begins) {
      if (!leave_address(plan_.stays[index_of(id)].bundle, start, who) || !own(id, start, who)) return false;
      stays_[index_of(id)] = {true, {}, std::nullopt};
      BundleLog& bundle = bundles_[index_of(plan_.stays[index_of(id)].bundle)];
      current_[plan_.stays[index_of(id)].bundle] = id;
      if (instr.kind == Instr::Kind::run) bundle.dead = true, bundle.values.clear();
      bundle.in_memory = instr.kind == Instr::Kind::read ? bundle.on_disk : bundle.version;
    }
    for (const StayId id : instr.stays) {
      const bool writes = instr.kind == Instr::Kind::read || (instr.kind == Instr::Kind::run && writes_to(instr, id));
      if (!access(id, start, static_cast<std::size_t>(instr.lane), position, writes, who)) return false;
    }
    switch (instr.kind) {
      case Instr::Kind::run: return check_run(instr, who);
      case Instr::Kind::read: return check_disk(instr, start, position, who) && check_read(instr, who);
      case Instr::Kind::write: return check_disk(instr, start, position, who) && check_write(instr, who);
      case Instr::Kind::commit: return check_commit(instr, who);
    }
    return true;
  }

  // Whatever earlier plans may have left under way on its bundles and pages is waited for by the instruction itself, or
  // was by one that has started before.
  bool check_firsts(const Instr& instr, const Clock& start, std::int32_t position, const std::string& who) {
    const auto lane = static_cast<std::size_t>(instr.lane);
    for (const StayId id : instr.begins) {
      for (const PageId page : plan_.stays[index_of(id)].pages) {
        if (index_of(page) >= owner_.size()) return fail("page {} is beyond the budget", index_of(page));
        const StayId owner = owner_[index_of(page)];
        const bool met = owner != StayId::none &&
                         (!entered_.contains(owner) ||
                          bundles_[index_of(plan_.stays[index_of(owner)].bundle)].changed.holds(lane, start));
        if (!instr.first && !met) return fail("{} may meet an earlier plan on page {}", who, index_of(page));
      }
    }
    for (const StayId id : instr.stays) {
      const BundleId of = plan_.stays[index_of(id)].bundle;
      BundleLog& bundle = bundles_[index_of(of)];
      const bool begins = std::find(instr.begins.begin(), instr.begins.end(), id) != instr.begins.end();
      const bool moves = instr.kind != Instr::Kind::run;
      const bool changes = begins || instr.kind == Instr::Kind::read || (!moves && segment_writes(of));
      if (instr.first) {
        bundle.seen.add(lane, position);
        if (changes) bundle.changed.add(lane, position);
        if (moves) bundle.moved_before.add(lane, position);
      }
      const Guard& guard = changes ? bundle.changed : bundle.seen;
      if (!guard.holds(lane, start) || (moves && !bundle.moved_before.holds(lane, start))) {
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
    const auto current = current_.find(plan_.stays[index_of(id)].bundle);
    if (!log.begun || current == current_.end() || current->second != id) {
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
    if (bundle.in_memory != bundle.version) return fail("{} writes an old version of bundle {}", who, index_of(id));
    bundle.on_disk = bundle.version;
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
    for (const BundleId id : changed) bundles_[index_of(id)].in_memory = ++bundles_[index_of(id)].version;
    return true;
  }

  bool check_value(const Instr& instr, ValueId id, bool writes, const std::string& who) {
    const Place& place = places_[index_of(id)];
    if (place.bundle == BundleId::none) return true;
    BundleLog& bundle = bundles_[index_of(place.bundle)];
    const bool named = std::any_of(instr.stays.begin(), instr.stays.end(),
                                   [&](StayId stay) { return plan_.stays[index_of(stay)].bundle == place.bundle; });
    if (!named) return fail("{} touches value %{} without naming its stay", who, index_of(id));
    if (bundle.in_memory != bundle.version)
      return fail("{} sees an old version of bundle {}", who, index_of(place.bundle));
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
    std::vector<bool> held(static_cast<std::size_t>(layout_.state_bundles), false);
    for (std::size_t i = 0; i < plan_.exit.stays.size(); ++i) {
      const StayId id = plan_.exit.stays[i];
      const BundleId of = plan_.stays[index_of(id)].bundle;
      if (!layout_.bundles[index_of(of)].state) return fail("local bundle {} is held at the exit", index_of(of));
      const BundleLog& bundle = bundles_[index_of(of)];
      held[index_of(of)] = true;
      for (const PageId page : plan_.stays[index_of(id)].pages) {
        if (owner_[index_of(page)] != id) return fail("bundle {} has lost a page at the exit", index_of(of));
      }
      if (bundle.in_memory != bundle.version) return fail("bundle {} is old at the exit", index_of(of));
      if (!plan_.exit.dirty[i] && bundle.on_disk != bundle.version) {
        return fail("bundle {} is dirty at the exit", index_of(of));
      }
    }
    const auto& dead = layout_.programs[static_cast<std::size_t>(plan_.program)].dead_on_exit;
    for (std::size_t b = 0; b < held.size(); ++b) {
      const BundleLog& bundle = bundles_[b];
      if (!committed_.empty() && layout_.bundles[b].committed && committed_[b] != bundle.version) {
        return fail("bundle {} changes after the commit", b);
      }
      if (dead[b]) continue;
      if (!held[b] && bundle.on_disk != bundle.version) return fail("bundle {} is old on disk at the exit", b);
    }
    return true;
  }

  const Plan& plan_;
  const Layout& layout_;
  const Program& program_;
  const std::vector<Place>& places_;
  std::vector<StayLog> stays_;
  std::vector<BundleLog> bundles_;
  std::vector<StayId> owner_;
  std::map<BundleId, StayId> current_;
  std::set<StayId> entered_;             // held at the entry
  std::size_t segment_ = 0;              // of the last run
  std::vector<std::int64_t> committed_;  // by state bundle: the version at the commit
  std::string error_;
};

}  // namespace

std::string verify(const Plan& plan, const Layout& layout, const Program& program) {
  return Verifier(plan, layout, program).run();
}

std::string verify_follows(const Plan& before, const Plan& after, const Layout& layout) {
  std::map<BundleId, bool> left;  // dirty
  for (std::size_t i = 0; i < before.exit.stays.size(); ++i) {
    left[before.stays[index_of(before.exit.stays[i])].bundle] = before.exit.dirty[i];
  }
  for (std::size_t i = 0; i < after.entry.stays.size(); ++i) {
    const BundleId bundle = after.stays[index_of(after.entry.stays[i])].bundle;
    const auto found = left.find(bundle);
    if (found == left.end()) return fmt::format("bundle {} is not left in memory", index_of(bundle));
    if (found->second && !after.entry.dirty[i]) return fmt::format("bundle {} is left dirty", index_of(bundle));
    left.erase(found);
  }
  const auto& dead = layout.programs[static_cast<std::size_t>(after.program)].dead_on_entry;
  for (const auto& [bundle, dirty] : left) {
    if (dirty && !dead[index_of(bundle)]) return fmt::format("bundle {} would be lost", index_of(bundle));
  }
  return {};
}

std::string dump(const Plan& plan, const Layout& layout, const Program& program) {
  std::string text = fmt::format("{} pages, entry {} stays, exit {} stays\n", plan.pages, plan.entry.stays.size(),
                                 plan.exit.stays.size());
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
