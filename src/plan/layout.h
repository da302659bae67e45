// The layout of a step: which values share storage, and which storage lives and moves together.
//
// A segment is a run of ops with one label; it is the grain at which the planner decides. A bundle is a group of values
// that are touched in exactly the same segments, laid side by side on whole pages of their own: it moves as one, and
// waste is the tail of its last page. Values of a single segment are packed by the lifetimes of its ops instead.
// Nothing here depends on a budget.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "program/program.h"

namespace spillway {

enum class BundleId : std::int32_t { none = -1 };
constexpr std::size_t index_of(BundleId id) { return static_cast<std::size_t>(id); }

// A Program as the planner sees it. Segment `s` covers ops [segment_begin[s], segment_begin[s + 1]).
struct Segments {
  std::vector<std::int32_t> begin;  // one more than there are segments

  explicit Segments(const Program& program);
  // Of `count` ops, each a segment.
  explicit Segments(std::int32_t count);
  std::int32_t count() const { return static_cast<std::int32_t>(begin.size()) - 1; }
};

struct Bundle {
  std::int64_t bytes = 0;    // used; a multiple of 4 KiB
  std::int64_t address = 0;  // offset in the address range of stays, page aligned
  bool state = false;        // outlives the step
  bool committed = false;    // state of which a commit holds at least a part
};

// Where a value lies.
struct Place {
  BundleId bundle = BundleId::none;  // none: an input or output, which lives outside the pages
  std::int64_t offset_bytes = 0;
};

// How a segment uses a bundle.
struct Use {
  BundleId bundle = BundleId::none;
  std::int32_t first_op = 0;  // ops of the segment that touch it
  std::int32_t last_op = 0;
  bool creates = false;  // nothing in it has a value yet that is needed from here on
  bool writes = false;   // its bytes change
  bool ends = false;     // nothing in it is needed afterwards, or until a later use creates it anew
  // Seen from a device, see plan/tiers.h:
  bool below = false;   // by ops that run in the host's memory: it must be newest there, and is old here if they write
  bool leaves = false;  // the next use is one below
};

struct ProgramLayout {
  Segments segments;
  std::vector<Place> places;           // by value
  std::vector<std::vector<Use>> uses;  // by segment, in the order of first_op
  // By state bundle: what it holds when the Program begins, or when it ends, is needed neither in it nor after it.
  // State that no commit holds and that the Program does not touch is dead at both ends.
  std::vector<bool> dead_on_entry;
  std::vector<bool> dead_on_exit;
  // By op: the last one before it that makes an output which it reads, or none. Outputs lie outside the pages, so no
  // wait for pages orders the two.
  std::vector<OpId> output_makers = {};
};

// The layouts of several Programs over one State. State bundles come first and are shared by all; each Program's local
// bundles follow.
struct Layout {
  std::int64_t page_bytes = 0;
  std::vector<Bundle> bundles;
  std::vector<Place> piece_places;  // by PieceId; pieces no Program touches are laid out too, alone
  std::vector<ProgramLayout> programs;
  std::int64_t address_bytes = 0;
  std::int32_t state_bundles = 0;

  std::int64_t pages_of(BundleId id) const { return (bundles[index_of(id)].bytes + page_bytes - 1) / page_bytes; }
};

// With page_bytes == 0 the page size follows from the largest working set of a segment.
Layout lay_out(std::span<const Program* const> programs, const State& state, std::int64_t page_bytes);

// Bytes of the bundles a segment touches, without page tails; the largest over all segments sets the smallest budget.
std::int64_t largest_working_set_bytes(const Layout& layout);

}  // namespace spillway
