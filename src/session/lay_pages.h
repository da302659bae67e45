// The pages of plans, laid anew so that fewer have to be moved (plan/flat.h), where a step is not slower for it.
#pragma once

#include <functional>
#include <optional>

#include "session/planned_programs.h"
#include "sim/simulate.h"

namespace spillway {

// A plan in virtual time: between others like it where it can follow itself, or else from rest. `slow_disk`: as if
// others had a part of the disk.
using PlanInTime = std::function<Timeline(const Plan& plan, bool slow_disk)>;

// A plan in virtual time with the whole disk, and how long it takes with less of it.
struct PlanTimes {
  Timeline timeline;
  double slow_disk_seconds = 0;

  double mean_seconds() const;  // as choices are compared (WorkScore::mean_seconds)
};

// Tries `tries` times for each of a few weights to lay the first plan flat and takes the best of those that are not
// slower, or leaves it as it is where there is none, unless `always`. All others are left as they are. Gives the times
// of the first plan as it is then; nothing where it was not to be laid (RunChoices::lays_pages) or is too large.
std::optional<PlanTimes> lay_first_flat(PlannedPrograms& planned, const PlanLinks& links, const PlanInTime& in_time,
                                        int tries, bool always);

// Where the first plan is flat, lays all others to follow it, each with the weight that serves it best: bundles that
// both have at a boundary lie on the same pages.
void lay_others_flat(PlannedPrograms& planned, const RunChoices& choices, const PlanLinks& links,
                     const PlanInTime& in_time);

}  // namespace spillway
