// A Plan is where and when: three lanes of instructions, in order, each naming what it waits for and the pages it uses.
// A pure function of (Programs, State, Machine); it can be printed, verified and compared. The executor interprets it
// and decides nothing.
#pragma once

#include <cstdint>
#include <string>
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

// Instructions of a lane start in order. Those of `compute` run one after the other; those of `read` and `write` may be
// in flight together, and count as done in order.
enum class LaneId : std::uint8_t { compute, read, write };
constexpr std::size_t lane_count = 3;
std::string_view name_of(LaneId lane);

// A bundle's bytes at its address on these pages, from the instruction that begins it until the last that names it.
// Pages are the plan's own numbers, below Plan::pages; the executor maps them to physical pages, so that a plan whose
// boundary holds the same bundles on other pages may follow.
struct Stay {
  BundleId bundle = BundleId::none;
  std::vector<PageId> pages;
};

struct Instr {
  enum class Kind : std::uint8_t { run, read, write };
  Kind kind = Kind::run;
  LaneId lane = LaneId::compute;
  OpId op = OpId::none;        // of a run
  std::vector<StayId> stays;   // those it touches: one for a move, the op's bundles for a run
  std::vector<StayId> begins;  // those among them whose pages it attaches first
  std::vector<InstrId> after;  // done before it starts, beside its lane's order
};

// Writes that may be in flight together; each holds the slots of its old version until the new one is complete.
constexpr std::int64_t max_writes_in_flight = 8;

// Between steps, loading and saving bring this many state bundles into memory beside those of the boundary.
constexpr std::int64_t visited_bundles = 2;

// The state bundles in memory when a plan begins and when it ends, with their stays; all others are on disk. Bundles in
// memory are taken to be newer than any copy on disk.
struct Boundary {
  std::vector<StayId> stays;
};

struct Traffic {
  std::int64_t read_bytes = 0;
  std::int64_t write_bytes = 0;
};

struct Plan {
  std::int32_t program = 0;  // index into the Programs it was made from
  std::int64_t pages = 0;
  std::vector<Instr> instrs;  // in an order that respects every wait
  std::vector<InstrId> lanes[lane_count];
  std::vector<Stay> stays;
  Boundary entry;
  Boundary exit;
  Traffic traffic;               // of one step
  std::int64_t peak_pages = 0;   // in use at once
  std::int64_t local_slots = 0;  // pages' worth of disk for local bundles that move
};

// Pages' worth of disk that suffices for these plans in turn, all versions alive at once; 0 when nothing ever moves.
std::int64_t disk_slots_for(const Layout& layout, std::span<const Plan> plans);

// The smallest number of pages at which a Program can be planned: its largest segment, and room at the boundary for
// loading and saving any state bundle.
std::int64_t smallest_pages(const Layout& layout);

// The number of pages at which nothing moves.
std::int64_t in_memory_pages(const Layout& layout, std::int32_t program);

// State bundles that a plan is asked to hold at its boundaries.
using Residents = std::vector<BundleId>;

// Plans one Program in `pages` pages, at least smallest_pages(). With `residents` null the plan settles its own
// boundary; otherwise its boundary holds exactly these. Whatever is evicted is what is needed farthest in the future
// (Belady); reads are issued ahead of need into pages that are free.
Plan make_plan(const Layout& layout, std::int32_t program, std::int64_t pages, const Residents* residents);

// Checks a plan on happens-before alone, never on times: pages have one owner at a time and are reused only after the
// last access of the old owner is done; every read of a value sees the version the Program means; moves carry what was
// written; boundaries are met; no wait is circular. Empty when the plan holds, otherwise one sentence.
std::string verify(const Plan& plan, const Layout& layout, const Program& program);

// For people: the lanes in order, one line an instruction.
std::string dump(const Plan& plan, const Layout& layout, const Program& program);

}  // namespace spillway
