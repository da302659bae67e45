// The instructions of a plan while it is made: they are emitted in the order of the planner's decisions and sorted into
// the order of the lanes at the end.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace spillway {

// Within a segment: what is read for it, its runs, writes of what it changed last.
enum class When : std::int32_t { read = 0, run = 1, write = 2 };

class Schedule {
 public:
  // The number is good until finish().
  InstrId emit(Instr instr, std::int32_t segment, When when);

  LaneId lane_of(InstrId id) const { return pending_[index_of(id)].instr.lane; }

  // Sorts into `plan`, with its lanes, and renames the waits. Marks the firsts.
  void finish(Plan& plan, const Layout& layout);

 private:
  struct Pending {
    Instr instr;
    std::int64_t time = 0;
  };
  std::vector<Pending> pending_;
};

// Marks the instructions of a plan that may meet what earlier plans left under way; see plan/trail.h.
void mark_firsts(Plan& plan, const Layout& layout);

}  // namespace spillway
