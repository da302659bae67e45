// The simulator: the same Plans that the executor runs, in virtual time. Decides nothing.
//
// The compute lane runs one op after the other; computing and the disk take longer beside each other. A move starts
// when what it waits for is done and its lane has room; it costs its pages' attaching and the time of a request, which
// overlap with other moves, and then its bytes, in the order of its lane. The lanes of both directions share the disk.
// Copies to and from a device go one after the other in each direction, both at once. A direct move between disk and
// device is one of the disk's, and no faster than the link, of which it has half at most while a copy goes in its
// direction; the copy has the rest. Ops of the update lane run beside those of the compute lane. A lane that had to
// wait goes on a little later than what it waited for. Plans follow each other as in the executor: the moves of the
// next one are known when the ops of the last one are done.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "machine/rates.h"
#include "plan/plan.h"

namespace spillway {

// What a step's instructions take on a machine.
struct StepRates {
  std::vector<double> op_seconds;     // by op of the Program, on all threads
  double repeated_seconds = 0;        // of these, ops that make again what was computed before
  std::vector<double> host_seconds;   // the same of those that may run anywhere, on the host; empty: as op_seconds
  bool shares_processor = false;      // the device computes with the host's: each is half as fast beside the other
  double read_bytes_per_second = 0;   // of the disk, alone
  double write_bytes_per_second = 0;  // alone
  double mixed_bytes_per_second = 0;  // both together, half and half
  double compute_slowdown = 1;        // how much longer computing takes while the disk is busy, at least 1
  double disk_slowdown = 1;           // how much longer the disk takes while the processor computes, at least 1
  double request_seconds = 0;         // of a move, beside its bytes
  double attach_seconds = 0;          // of a page that lies elsewhere, or up to 2 MiB of neighbours
  double wake_seconds = 0;            // of a lane that waited
  LinkRate link;                      // between host and device, where the plan has one
  // By instruction of the plan, when not empty: what each move took from its turn on, as it was measured in a run. The
  // rates of disk and link above are then not used.
  std::vector<double> move_seconds;

  void scale_disk(double factor) {
    read_bytes_per_second *= factor;
    write_bytes_per_second *= factor;
    mixed_bytes_per_second *= factor;
  }
};

struct Timeline {
  double seconds = 0;           // of the step: from the end of the last op of the step before to its own last op
  double compute_seconds = 0;   // sum of the ops of the compute lane
  double repeated_seconds = 0;  // of these, what StepRates says
  double update_seconds = 0;    // sum of those of the update lane
  double disk_seconds = 0;      // no disk moves these bytes in less
  double read_seconds = 0;      // reads were under way
  double write_seconds = 0;
  double up_seconds = 0;       // copies to the device were under way
  double down_seconds = 0;     // and from it
  double link_seconds = 0;     // the link moves no direction's bytes in less
  double attach_seconds = 0;   // pages were put at an address, whatever else went on meanwhile
  double stalled_seconds = 0;  // the compute lane waited, at its end for the update lane
  std::vector<double> starts;  // by instruction, from the end of the step before
  std::vector<double> ends;    // of moves maybe beyond `seconds`

  // No step that moves these bytes is faster: what is made again is what the plan costs, not what a step takes.
  double lower_bound_seconds() const {
    return std::max({compute_seconds - repeated_seconds, update_seconds, disk_seconds, link_seconds});
  }
  // What ops of the compute lane take longer beside the busy disk, and beside those of the update lane, and what waking
  // up and attaching pages add.
  double slowed_seconds() const { return std::max(0.0, seconds - stalled_seconds - compute_seconds); }
};

// A run of a plan, and what its instructions take.
struct PlannedRun {
  const Plan* plan = nullptr;
  const StepRates* rates = nullptr;
};

// Runs that follow each other, each plan finding in memory what the one before left there; at first nothing is under
// way. A timeline for each.
std::vector<Timeline> simulate_runs(std::span<const PlannedRun> runs, const Layout& layout);

// One run from rest to rest: `seconds` is until nothing is under way.
Timeline simulate(const Plan& plan, const Layout& layout, const StepRates& rates);

// A step in the midst of many: the plan, which must be one that may follow itself, follows itself until its time
// and what it leaves under way settle.
Timeline simulate_steady(const Plan& plan, const Layout& layout, const StepRates& rates);

}  // namespace spillway
