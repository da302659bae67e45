// A Plan is where and when: lanes of instructions, in order, each naming what it waits for and the pages it uses. A
// pure function of (Programs, State, Machine); it can be printed, verified and compared. The executor interprets it and
// decides nothing.
//
// Most plans know one memory, the host's, over disk. A plan with device pages has two above it (plan/tiers.h): ops use
// pages of the device alone, and copies over a link go between these and pages of the host.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "machine/machine.h"
#include "plan/layout.h"

namespace spillway {

enum class PageId : std::int32_t { none = -1 };
enum class StayId : std::int32_t { none = -1 };
enum class InstrId : std::int32_t { none = -1 };
constexpr std::size_t index_of(PageId id) { return static_cast<std::size_t>(id); }
constexpr std::size_t index_of(StayId id) { return static_cast<std::size_t>(id); }
constexpr std::size_t index_of(InstrId id) { return static_cast<std::size_t>(id); }

// Instructions of a lane start in order. Those of `compute` and `update` run one after the other; those of the others
// may be in flight together, and count as done in order. `read` and `write` are the disk's directions, `up` (to the
// device) and `down` (to the host) the link's. `update` has the ops that a plan with a device runs on the host's
// processor, in the host's memory.
enum class LaneId : std::uint8_t { compute, read, write, up, down, update };
constexpr std::size_t lane_count = 6;
constexpr bool runs_ops(LaneId lane) { return lane == LaneId::compute || lane == LaneId::update; }
std::string_view name_of(LaneId lane);

// The last instructions of each lane to touch something; none: the lane does not.
using Accesses = std::array<InstrId, lane_count>;
inline constexpr Accesses no_accesses = [] {
  Accesses none{};
  none.fill(InstrId::none);
  return none;
}();

enum class MemoryId : std::uint8_t { host, device };
constexpr std::size_t memory_count = 2;
std::string_view name_of(MemoryId memory);

// A bundle's bytes at its address in a memory, on these pages, from the instruction that begins it until the last that
// names it. Pages are the plan's own numbers: those of the host are below Plan::pages, and those of the device follow.
// The executor maps them to physical pages of the same memory, so that a plan whose boundary holds the same bundles on
// other pages may follow.
struct Stay {
  BundleId bundle = BundleId::none;
  std::vector<PageId> pages;
  MemoryId memory = MemoryId::host;
};

// A bundle in a memory: it has at most one stay there at a time.
struct Residence {
  MemoryId memory = MemoryId::host;
  BundleId bundle = BundleId::none;
  auto operator<=>(const Residence&) const = default;
};
inline Residence residence_of(const Stay& stay) { return {stay.memory, stay.bundle}; }
// Residences counted from 0; those of the host come first, so that plans of one memory have no others.
inline std::size_t index_in(const Layout& layout, const Residence& residence) {
  return static_cast<std::size_t>(residence.memory) * layout.bundles.size() + index_of(residence.bundle);
}

struct Instr {
  // A commit stands in the write lane and is reached when all writes before it are done: then the versions on disk of
  // all committed state are those of the end of its step.
  // `up` and `down` copy a bundle between its two stays.
  enum class Kind : std::uint8_t { run, read, write, commit, up, down };
  Kind kind = Kind::run;
  LaneId lane = LaneId::compute;
  OpId op = OpId::none;  // of a run
  // Those it touches: one for a move of the disk, that of the device and that of the host for a copy, the op's bundles
  // for a run, none for a commit. A move of the disk that names a stay of the device is a direct one (plan/direct.h).
  std::vector<StayId> stays;
  std::vector<StayId> begins;  // those among them whose pages it attaches first
  std::vector<InstrId> after;  // done before it starts, beside its lane's order
  // It may be the first of its plan to meet what earlier plans left under way on its bundles and pages, so it waits for
  // that too; see plan/trail.h.
  bool first = false;
};

// Whether such a move fills the stay that it names in this memory.
constexpr bool fills(Instr::Kind kind, MemoryId memory) {
  return kind == Instr::Kind::read || kind == (memory == MemoryId::device ? Instr::Kind::up : Instr::Kind::down);
}
// A move to or from disk.
constexpr bool is_of_disk(Instr::Kind kind) { return kind == Instr::Kind::read || kind == Instr::Kind::write; }
constexpr bool is_copy(Instr::Kind kind) { return kind == Instr::Kind::up || kind == Instr::Kind::down; }

// Writes that may be in flight together; each holds the slots of its old version until the new one is complete.
constexpr std::int64_t max_writes_in_flight = 8;

// Between steps, loading and saving bring this many state bundles into memory beside those of the boundary.
constexpr std::int64_t visited_bundles = 2;

// The state bundles in memory when a plan begins and when it ends, with their stays; all others are on disk, or about
// to be: moves of the plan before may still be under way. A bundle that is not dirty has its newest version below too:
// one of the host on disk, one of the device in the host's memory or on disk.
struct Boundary {
  std::vector<StayId> stays;
  std::vector<bool> dirty;  // by stay: memory may be newer than the copy below
};

// A state bundle that a plan finds or leaves in memory.
struct Held {
  BundleId bundle = BundleId::none;
  bool dirty = false;
  bool operator==(const Held&) const = default;
};
using Residents = std::vector<Held>;

struct Traffic {
  std::int64_t read_bytes = 0;
  std::int64_t write_bytes = 0;
};

struct Plan {
  std::int32_t program = 0;       // index into the Programs it was made from
  std::int64_t pages = 0;         // of the host
  std::int64_t device_pages = 0;  // 0: ops use the host's
  std::vector<Instr> instrs;      // in an order that respects every wait
  std::array<std::vector<InstrId>, lane_count> lanes;
  std::vector<Stay> stays;
  Boundary entry;
  Boundary exit;
  Traffic traffic;              // of one step, to and from disk
  std::int64_t up_bytes = 0;    // of one step, copied over the link
  std::int64_t down_bytes = 0;  // the same
  Traffic direct;               // of `traffic`, between disk and device, past the host's memory: not among the copies
  std::int64_t peak_pages = 0;  // in use at once, of the host
  std::int64_t peak_device_pages = 0;
  std::int64_t local_slots = 0;  // pages' worth of disk for local bundles that move
  std::int64_t held_slots = 0;   // the same for the versions from before it, when it may be taken back
  bool flat = false;             // lay_flat() chose its pages (plan/flat.h)

  std::int64_t all_pages() const { return pages + device_pages; }
  // The memory that ops of this lane use.
  MemoryId memory_of(LaneId lane) const {
    return lane == LaneId::compute && device_pages > 0 ? MemoryId::device : MemoryId::host;
  }
  // Something goes between the device and what is below it.
  bool uses_link() const { return up_bytes + down_bytes + direct.read_bytes + direct.write_bytes > 0; }
  // Of the memory that the compute lane uses.
  std::int64_t compute_pages() const { return device_pages > 0 ? device_pages : pages; }
};

// A move between disk and device.
inline bool is_direct(const Plan& plan, const Instr& instr) {
  return is_of_disk(instr.kind) && plan.stays[index_of(instr.stays.front())].memory == MemoryId::device;
}

// By state bundle: whether what is below the device when this plan begins is neither read by it nor left by it to be
// read. All false for plans of one memory.
std::vector<bool> dead_below_on_entry(const Plan& plan, const Layout& layout);

// Pages' worth of disk that suffices for these plans in turn, all versions alive at once, and as many older versions of
// all committed state beside them; 0 when nothing ever moves.
std::int64_t disk_slots_for(const Layout& layout, std::span<const Plan> plans, std::int64_t older_versions = 0);

// The smallest number of pages at which a Program can be planned: its largest segment, and room at the boundary for
// loading and saving any state bundle.
std::int64_t smallest_pages(const Layout& layout);

// Of the largest bundle of state.
std::int64_t largest_state_pages(const Layout& layout);
// Of all bundles of state that commits keep.
std::int64_t committed_pages(const Layout& layout);

// Pages that a boundary leaves free for loading and saving.
std::int64_t visit_pages(const Layout& layout);

// The number of pages at which nothing moves.
std::int64_t in_memory_pages(const Layout& layout, std::int32_t program);

// What decides which bundles give way and how far ahead of their use they are read; see plan/policy.h. All give the
// same bits.
enum class Policy : std::uint8_t {
  automatic,           // what is needed farthest in the future gives way, what was changed last after all else
  everything_on_disk,  // state leaves after each use, and comes back a few segments ahead of the next
  lru,                 // what was used longest ago gives way; reads on demand
  lifetime,            // the periods without use that relieve memory most are spent on disk
  belady,              // as automatic, without regard to the time that moves take
};
inline constexpr std::array all_policies = {Policy::automatic, Policy::everything_on_disk, Policy::lru,
                                            Policy::lifetime, Policy::belady};
std::string_view name_of(Policy policy);
std::optional<Policy> policy_named(std::string_view name);

// See PlanRequest::settling.
inline constexpr double default_settling = 0.25;

struct PlanRequest {
  Policy policy = Policy::automatic;
  // Of Policy::automatic: the share, of the pages that are not pinned, for what is in memory and was changed last. It
  // gives way after all else: its pages are free only once it is written, and what is to lie there would wait for that.
  double settling = default_settling;
  bool commits = false;  // every version of committed state is written after its last change, and a commit follows
  // By bundle: gives way only to what is needed at once, and after all others. Null: none.
  const std::vector<bool>* pinned = nullptr;
  // What the boundary holds. Without `entry` the plan settles a boundary at which it can follow itself; without `exit`
  // it ends as it begins. An exit bundle is dirty only where `exit` permits it.
  const Residents* entry = nullptr;
  const Residents* exit = nullptr;
  // By state bundle: those that the exit does not hold dirty. Null: none.
  const std::vector<bool>* clean = nullptr;
  // By segment: the lane its ops run in, which is then no order between those of different lanes. Null: compute, all.
  const std::vector<LaneId>* lanes = nullptr;
  // By segment, of a plan with a device: its ops run on the host's processor, in the host's memory. Null: none does.
  const std::vector<bool>* below = nullptr;
  bool direct = false;  // the device has a path of its own to the disk; see plan/direct.h
  // Of a plan of one memory: what begins a stay does not wait for its pages, which keep_pages() then takes as they are,
  // or place_stays() or lay_flat() chooses.
  bool unplaced = false;
};

// Plans one Program in `pages` pages, at least smallest_pages(). State that the Program only creates (see Use::creates)
// is not held at the entry whatever is asked; at the exit it is live like any other.
Plan make_plan(const Layout& layout, std::int32_t program, std::int64_t pages, const PlanRequest& request);

// What another Program's plan must hold in a memory to stand between two runs of this plan, which must be able to
// follow itself; what this plan leaves and does not find is among it.
Residents residents_of(const Plan& plan, MemoryId memory = MemoryId::host);

// Checks a plan on happens-before alone, never on times: pages have one owner at a time and are reused only after the
// last access of the old owner is done; every read of a value sees the version the Program means; moves carry what was
// written; boundaries are met; no wait is circular; and whatever earlier plans may have left under way is waited for.
// Empty when the plan holds, otherwise one sentence.
std::string verify(const Plan& plan, const Layout& layout, const Program& program);

// Whether `after` may run after `before` with no barrier between: it finds in memory what it expects, no dirtier, and
// what it does not expect is on disk or of no use to it. Empty when it may, otherwise one sentence.
std::string verify_follows(const Plan& before, const Plan& after, const Layout& layout);

// For people: the lanes in order, one line an instruction.
std::string dump(const Plan& plan, const Layout& layout, const Program& program);

}  // namespace spillway
