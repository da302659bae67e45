// The planner: one pass over the segments of a step. Before each segment, whatever it touches is brought in; whatever
// is evicted for that is needed farthest in the future (Belady's rule, exact here because the whole step is known);
// then reads for the segments to come are issued into pages that are free. A write is placed right after the last
// change of what will be evicted, so that by the time the pages are wanted they are clean.
#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "plan/plan.h"

namespace spillway {
namespace {

constexpr std::int32_t never = std::numeric_limits<std::int32_t>::max();

// How far ahead of the running segment reads may be issued.
constexpr std::int32_t lookahead_segments = 48;

// Orders instructions into the final list: reads for segment s, its runs, writes of what it changed last.
enum class Slot : std::int32_t { read = 0, run = 1, write = 2 };

struct Pending {
  Instr instr;
  std::int64_t time = 0;
};

struct Page {
  std::array<InstrId, lane_count> last = {InstrId::none, InstrId::none, InstrId::none};  // accesses to outlive
};

struct Holding {
  StayId stay = StayId::none;          // none: not in memory
  bool dirty = false;                  // memory is newer than disk
  InstrId last_write = InstrId::none;  // the move that made the copy on disk
  InstrId last_read = InstrId::none;   // the move that brought it in
  InstrId last_run = InstrId::none;    // the last run of this stay
  std::int32_t last_touch = -1;        // the segment of that run
  bool spilled = false;                // a local one that has slots
};

std::int64_t largest_state_pages(const Layout& layout) {
  std::int64_t pages = 0;
  for (std::int32_t b = 0; b < layout.state_bundles; ++b) {
    pages = std::max(pages, layout.pages_of(static_cast<BundleId>(b)));
  }
  return pages;
}

// What must be free at a boundary.
std::int64_t visit_pages(const Layout& layout) {
  return std::min<std::int64_t>(visited_bundles, layout.state_bundles) * largest_state_pages(layout);
}

std::int64_t state_pages(const Layout& layout) {
  std::int64_t pages = 0;
  for (std::int32_t b = 0; b < layout.state_bundles; ++b) pages += layout.pages_of(static_cast<BundleId>(b));
  return pages;
}

class Planner {
 public:
  Planner(const Layout& layout, std::int32_t program, std::int64_t pages)
      : layout_(layout), program_(layout.programs[static_cast<std::size_t>(program)]) {
    plan_.program = program;
    plan_.pages = pages;
    touches_.resize(layout.bundles.size());
    for (std::int32_t s = 0; s < segments(); ++s) {
      for (const Use& use : uses(s)) touches_[index_of(use.bundle)].push_back(s);
    }
  }

  // With `wrap`, reads for the start of the next step are issued at the end of this one, and the boundary is whatever
  // that leaves in memory; otherwise the boundary is made to be `residents` again.
  Plan make(const Residents& residents, bool wrap) {
    pages_.resize(static_cast<std::size_t>(plan_.pages));
    for (std::int64_t p = plan_.pages - 1; p >= 0; --p) free_.push_back(static_cast<PageId>(p));
    holdings_.resize(layout_.bundles.size());
    enter(residents);
    for (std::int32_t s = 0; s < segments(); ++s) {
      now_ = s;
      bring_in(s);
      read_ahead(s, wrap);
      run(s);
    }
    now_ = segments();
    if (!wrap) restore(residents);
    make_room_at_boundary();
    leave();
    order();
    count_slots();
    return std::move(plan_);
  }

 private:
  std::int32_t segments() const { return program_.segments.count(); }
  const std::vector<Use>& uses(std::int32_t s) const { return program_.uses[static_cast<std::size_t>(s)]; }
  Holding& holding(BundleId bundle) { return holdings_[index_of(bundle)]; }
  bool is_state(BundleId bundle) const { return layout_.bundles[index_of(bundle)].state; }
  std::int64_t free_pages() const { return static_cast<std::int64_t>(free_.size()); }

  // The next segment that touches the bundle after segment s; state comes round again in the next step.
  std::int32_t next_use(BundleId bundle, std::int32_t s) const {
    const auto& touches = touches_[index_of(bundle)];
    const auto next = std::upper_bound(touches.begin(), touches.end(), s);
    if (next != touches.end()) return *next;
    return is_state(bundle) && !touches.empty() ? segments() + touches.front() : never;
  }

  static std::int64_t time(std::int32_t segment, Slot slot) {
    return 3 * static_cast<std::int64_t>(segment) + static_cast<std::int64_t>(slot);
  }

  InstrId emit(Instr instr, std::int64_t when) {
    pending_.push_back({std::move(instr), when});
    return static_cast<InstrId>(pending_.size() - 1);
  }

  // The later of two instructions of one lane in the final order.
  InstrId later(InstrId a, InstrId b) const {
    if (a == InstrId::none) return b;
    if (b == InstrId::none) return a;
    const auto key = [&](InstrId id) { return std::pair(pending_[index_of(id)].time, id); };
    return key(a) < key(b) ? b : a;
  }

  void enter(const Residents& residents) {
    for (const BundleId bundle : residents) {
      SPILLWAY_CHECK(free_pages() >= layout_.pages_of(bundle), "the boundary does not fit in {} pages", plan_.pages);
      holding(bundle).stay = take_pages(bundle);
      holding(bundle).dirty = true;
      resident_.push_back(bundle);
      plan_.entry.stays.push_back(holding(bundle).stay);
    }
  }

  StayId take_pages(BundleId bundle) {
    Stay stay{bundle, {}};
    for (std::int64_t i = layout_.pages_of(bundle); i > 0; --i) {
      stay.pages.push_back(free_.back());
      free_.pop_back();
    }
    plan_.peak_pages = std::max(plan_.peak_pages, plan_.pages - free_pages());
    plan_.stays.push_back(std::move(stay));
    return static_cast<StayId>(plan_.stays.size() - 1);
  }

  // What must be done before the pages of a stay may be written anew.
  std::vector<InstrId> waits_of_pages(StayId stay) const {
    std::array<InstrId, lane_count> last = {InstrId::none, InstrId::none, InstrId::none};
    for (const PageId page : plan_.stays[index_of(stay)].pages) {
      for (std::size_t lane = 0; lane < lane_count; ++lane) {
        last[lane] = later(last[lane], pages_[index_of(page)].last[lane]);
      }
    }
    std::vector<InstrId> waits;
    for (const InstrId id : last) {
      if (id != InstrId::none) waits.push_back(id);
    }
    return waits;
  }

  void bring_in(std::int32_t s) {
    std::int64_t wanted = 0;
    for (const Use& use : uses(s)) {
      if (holding(use.bundle).stay == StayId::none) wanted += layout_.pages_of(use.bundle);
    }
    while (free_pages() < wanted) {
      const BundleId victim = farthest(s, s);
      SPILLWAY_CHECK(victim != BundleId::none, "segment {} does not fit in {} pages", s, plan_.pages);
      evict(victim);
    }
    for (const Use& use : uses(s)) {
      if (holding(use.bundle).stay == StayId::none && !use.creates) read(use.bundle);
    }
    for (const Use& use : uses(s)) {
      if (!use.creates) continue;
      holding(use.bundle).stay = take_pages(use.bundle);
      resident_.push_back(use.bundle);
    }
  }

  // The bundle in memory whose next use is farthest, and later than segment `until`; bundles touched in [s, until]
  // stay.
  BundleId farthest(std::int32_t s, std::int32_t until) const {
    BundleId best = BundleId::none;
    std::int32_t best_use = until;
    for (const BundleId bundle : resident_) {
      const std::int32_t next = next_use(bundle, s - 1);
      if (next > best_use) {
        best = bundle;
        best_use = next;
      }
    }
    return best;
  }

  void read(BundleId bundle) {
    Holding& held = holding(bundle);
    held.stay = take_pages(bundle);
    held.dirty = false;
    Instr instr{Instr::Kind::read, LaneId::read, OpId::none, {held.stay}, {held.stay}, waits_of_pages(held.stay)};
    // Its address is where it lay before, and may still be read or read into there.
    for (const InstrId wait : {held.last_run, held.last_read, held.last_write}) {
      if (wait != InstrId::none) instr.after.push_back(wait);
    }
    held.last_run = InstrId::none;
    held.last_read = emit(std::move(instr), time(now_, Slot::read));
    resident_.push_back(bundle);
    plan_.traffic.read_bytes += layout_.bundles[index_of(bundle)].bytes;
  }

  void evict(BundleId bundle) {
    if (holding(bundle).dirty) write(bundle);
    release(bundle);
  }

  void write(BundleId bundle) {
    Holding& held = holding(bundle);
    Instr instr{Instr::Kind::write, LaneId::write, OpId::none, {held.stay}, {}, {}};
    if (held.last_run != InstrId::none) instr.after.push_back(held.last_run);
    held.last_write = emit(std::move(instr), time(held.last_touch, Slot::write));
    held.dirty = false;
    held.spilled = true;
    plan_.traffic.write_bytes += layout_.bundles[index_of(bundle)].bytes;
  }

  void release(BundleId bundle) {
    Holding& held = holding(bundle);
    for (const PageId page : plan_.stays[index_of(held.stay)].pages) {
      pages_[index_of(page)].last = {held.last_run, held.last_read, held.last_write};
      free_.push_back(page);
    }
    held.stay = StayId::none;
    resident_.erase(std::find(resident_.begin(), resident_.end(), bundle));
  }

  // Issues reads for the segments after s. Pages must be free now, and enough must be left for what will be created
  // before each read is used; bundles needed later still than what is read give way.
  void read_ahead(std::int32_t s, bool wrap) {
    std::int64_t created = 0;
    std::int64_t reserve = 0;
    std::int64_t ended = pages_ending(s);
    const std::int32_t last = wrap ? s + lookahead_segments : std::min(s + lookahead_segments, segments() - 1);
    for (std::int32_t j = s + 1; j <= last; ++j) {
      const std::int32_t segment = j % segments();
      if (j >= segments() && segment >= s) return;
      for (const Use& use : uses(segment)) {
        if (use.creates && j < segments()) created += layout_.pages_of(use.bundle);
      }
      reserve = std::max(reserve, created - ended);
      if (j >= segments()) reserve = std::max(reserve, boundary_pages());
      for (const Use& use : uses(segment)) {
        if (use.creates || holding(use.bundle).stay != StayId::none) continue;
        if (j >= segments() && !is_state(use.bundle)) continue;
        if (!can_be_read(use.bundle, s, j) || !make_room(layout_.pages_of(use.bundle) + reserve, s, j)) return;
        read(use.bundle);
      }
      if (j < segments()) ended += pages_ending(j);
    }
  }

  // A local bundle that is not created yet cannot be read.
  bool can_be_read(BundleId bundle, std::int32_t s, std::int32_t j) const {
    return is_state(bundle) || touches_[index_of(bundle)].front() <= s || touches_[index_of(bundle)].front() > j;
  }

  bool make_room(std::int64_t wanted, std::int32_t s, std::int32_t j) {
    std::int64_t gain = free_pages();
    for (const BundleId bundle : resident_) {
      if (gain >= wanted) break;
      if (next_use(bundle, s - 1) > j) gain += layout_.pages_of(bundle);
    }
    if (gain < wanted) return false;
    while (free_pages() < wanted) evict(farthest(s, j));
    return true;
  }

  std::int64_t pages_ending(std::int32_t s) const {
    std::int64_t pages = 0;
    for (const Use& use : uses(s)) {
      if (use.ends) pages += layout_.pages_of(use.bundle);
    }
    return pages;
  }

  std::int64_t boundary_pages() const { return visit_pages(layout_); }

  void run(std::int32_t s) {
    const std::int32_t begin = program_.segments.begin[static_cast<std::size_t>(s)];
    const std::int32_t end = program_.segments.begin[static_cast<std::size_t>(s) + 1];
    std::vector<Instr> instrs(static_cast<std::size_t>(end - begin));
    for (std::int32_t i = begin; i < end; ++i) {
      Instr& instr = instrs[static_cast<std::size_t>(i - begin)];
      instr.op = static_cast<OpId>(i);
    }
    for (const Use& use : uses(s)) {
      Holding& held = holding(use.bundle);
      Instr& first = instrs[static_cast<std::size_t>(use.first_op - begin)];
      if (use.creates) {
        first.begins.push_back(held.stay);
        for (const InstrId wait : waits_of_pages(held.stay)) first.after.push_back(wait);
      } else if (held.last_run == InstrId::none && held.last_read != InstrId::none) {
        first.after.push_back(held.last_read);
      } else if (use.writes && held.last_write != InstrId::none) {
        first.after.push_back(held.last_write);  // the copy on its way out must not change under it
      }
      for (std::int32_t i = use.first_op; i <= use.last_op; ++i) {
        instrs[static_cast<std::size_t>(i - begin)].stays.push_back(held.stay);
      }
    }
    const auto first_id = static_cast<std::int32_t>(pending_.size());
    for (Instr& instr : instrs) emit(std::move(instr), time(s, Slot::run));
    for (const Use& use : uses(s)) {
      Holding& held = holding(use.bundle);
      held.last_run = static_cast<InstrId>(first_id + use.last_op - begin);
      held.last_touch = s;
      held.dirty = held.dirty || use.writes || use.creates;
    }
    for (const Use& use : uses(s)) {
      if (use.ends) release(use.bundle);
    }
  }

  // Makes the boundary hold exactly these bundles again.
  void restore(const Residents& residents) {
    const std::vector<BundleId> held = resident_;
    for (const BundleId bundle : held) {
      if (std::find(residents.begin(), residents.end(), bundle) == residents.end()) evict(bundle);
    }
    for (const BundleId bundle : residents) {
      if (holding(bundle).stay == StayId::none) read(bundle);
    }
  }

  // Saving and loading bring any state bundles into memory between steps.
  void make_room_at_boundary() {
    while (free_pages() < boundary_pages()) evict(farthest(segments(), -1));
  }

  void leave() {
    std::sort(resident_.begin(), resident_.end());
    for (const BundleId bundle : resident_) {
      SPILLWAY_CHECK(is_state(bundle), "local bundle {} outlives the step", index_of(bundle));
      plan_.exit.stays.push_back(holding(bundle).stay);
    }
  }

  // The final order and the lanes; instructions are renamed to their places in it.
  void order() {
    std::vector<std::int32_t> order(pending_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return pending_[static_cast<std::size_t>(a)].time < pending_[static_cast<std::size_t>(b)].time;
    });
    std::vector<InstrId> renamed(pending_.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      renamed[static_cast<std::size_t>(order[i])] = static_cast<InstrId>(i);
    }
    for (const std::int32_t old : order) {
      Instr instr = std::move(pending_[static_cast<std::size_t>(old)].instr);
      for (InstrId& wait : instr.after) wait = renamed[index_of(wait)];
      std::sort(instr.after.begin(), instr.after.end());
      instr.after.erase(std::unique(instr.after.begin(), instr.after.end()), instr.after.end());
      plan_.lanes[static_cast<std::size_t>(instr.lane)].push_back(static_cast<InstrId>(plan_.instrs.size()));
      plan_.instrs.push_back(std::move(instr));
    }
  }

  void count_slots() {
    for (std::size_t b = static_cast<std::size_t>(layout_.state_bundles); b < holdings_.size(); ++b) {
      if (holdings_[b].spilled) plan_.local_slots += layout_.pages_of(static_cast<BundleId>(b));
    }
  }

  const Layout& layout_;
  const ProgramLayout& program_;
  Plan plan_;
  std::vector<std::vector<std::int32_t>> touches_;  // by bundle
  std::vector<Pending> pending_;
  std::vector<Page> pages_;
  std::vector<PageId> free_;
  std::vector<Holding> holdings_;
  std::vector<BundleId> resident_;
  std::int32_t now_ = 0;
};

Residents residents_at(const Plan& plan, const Boundary& boundary) {
  Residents residents;
  for (const StayId stay : boundary.stays) residents.push_back(plan.stays[index_of(stay)].bundle);
  std::sort(residents.begin(), residents.end());
  return residents;
}

}  // namespace

std::string_view name_of(LaneId lane) {
  switch (lane) {
    case LaneId::compute: return "compute";
    case LaneId::read: return "read";
    case LaneId::write: return "write";
  }
  return "?";
}

std::int64_t smallest_pages(const Layout& layout) {
  std::int64_t smallest = visit_pages(layout);
  for (const ProgramLayout& program : layout.programs) {
    for (const auto& uses : program.uses) {
      std::int64_t pages = 0;
      for (const Use& use : uses) pages += layout.pages_of(use.bundle);
      smallest = std::max(smallest, pages);
    }
  }
  return smallest;
}

std::int64_t in_memory_pages(const Layout& layout, std::int32_t program) {
  std::int64_t alive = 0;
  std::int64_t peak = visit_pages(layout);
  for (const auto& uses : layout.programs[static_cast<std::size_t>(program)].uses) {
    for (const Use& use : uses) alive += use.creates ? layout.pages_of(use.bundle) : 0;
    peak = std::max(peak, alive);
    for (const Use& use : uses) alive -= use.ends ? layout.pages_of(use.bundle) : 0;
  }
  return state_pages(layout) + peak;
}

std::int64_t disk_slots_for(const Layout& layout, std::span<const Plan> plans) {
  bool moves = false;
  std::int64_t slots = 0;
  for (const Plan& plan : plans) {
    moves = moves || plan.traffic.read_bytes > 0 || plan.traffic.write_bytes > 0 ||
            static_cast<std::int32_t>(plan.entry.stays.size()) < layout.state_bundles;
    slots += plan.local_slots;
  }
  if (!moves) return 0;
  slots += state_pages(layout);
  return slots + max_writes_in_flight * largest_state_pages(layout);
}

Plan make_plan(const Layout& layout, std::int32_t program, std::int64_t pages, const Residents* residents) {
  if (residents != nullptr) return Planner(layout, program, pages).make(*residents, false);
  // A step that follows itself: start from nothing in memory and let the boundary settle; if it goes round in a longer
  // circle, hold it to the last one seen.
  constexpr int attempts = 6;
  Residents boundary;
  if (pages >= in_memory_pages(layout, program)) {
    for (std::int32_t b = 0; b < layout.state_bundles; ++b) boundary.push_back(static_cast<BundleId>(b));
  }
  for (int i = 0; i < attempts; ++i) {
    Plan plan = Planner(layout, program, pages).make(boundary, true);
    Residents next = residents_at(plan, plan.exit);
    if (next == boundary) return plan;
    boundary = std::move(next);
  }
  return Planner(layout, program, pages).make(boundary, false);
}

}  // namespace spillway
