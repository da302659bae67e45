// The simulator: the same Plan that the executor runs, in virtual time. Decides nothing.
#pragma once

#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace spillway {

// What a step's instructions take on a machine.
struct StepRates {
  std::vector<double> op_seconds;     // by op of the Program, on all threads
  double read_bytes_per_second = 0;   // of the disk, alone
  double write_bytes_per_second = 0;  // alone
  double mixed_bytes_per_second = 0;  // both together, half and half
  double compute_slowdown = 1;        // how much longer computing takes while the disk is busy, at least 1
};

struct Timeline {
  double seconds = 0;          // of the step: until nothing is under way, or in a stream from step to step
  double compute_seconds = 0;  // sum of the ops
  double disk_seconds = 0;     // all bytes at the mixed rate
  double stalled_seconds = 0;  // the compute lane waited
  std::vector<double> starts;  // by instruction, from the beginning of the step
  std::vector<double> ends;

  // No schedule of this plan's work can be faster.
  double lower_bound_seconds() const { return compute_seconds > disk_seconds ? compute_seconds : disk_seconds; }
  std::string_view bottleneck() const { return compute_seconds >= disk_seconds ? "compute" : "disk"; }
};

// One step from rest to rest. Each lane serves its instructions in order, one at a time; moves in both directions share
// the disk.
Timeline simulate(const Plan& plan, const Layout& layout, const StepRates& rates);

// A step among others of the same plan, with no barrier between; it begins when the ops of the step before end. The
// plan must be one that may follow itself.
Timeline simulate_steady(const Plan& plan, const Layout& layout, const StepRates& rates);

}  // namespace spillway
