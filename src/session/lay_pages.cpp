#include "session/lay_pages.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "plan/flat.h"

namespace spillway {
namespace {

// Of a stay that begins late, some is waited for: more where the disk is what binds.
constexpr std::array weights = {0.5, 0.1, 0.02};

// Who attaches a page interrupts the others that compute, which the simulator does not know.
double cost_of(double seconds, const Timeline& times) { return seconds + times.attach_seconds; }

PlanTimes times_of(const Plan& plan, const PlanInTime& in_time) {
  return {in_time(plan, false), in_time(plan, true).seconds};
}

// The first plan with its pages laid, not flat where none is better than what took `times`, which become those of what
// is given. Each try goes by when things happened in the one before, and starts from where that one ended.
Plan best_laid(const PlannedPrograms& planned, PlanTimes& times, const PlanInTime& in_time, int tries, bool always) {
  const Plan& bare = planned.first_unplaced;
  const Timeline as_it_is = times.timeline;
  double most = std::numeric_limits<double>::infinity();
  double least = most;
  if (!always) {
    most = times.mean_seconds();
    least = cost_of(most, as_it_is);
  }
  const auto is_better = [&](double seconds, const Timeline& laid) {
    return seconds <= most && cost_of(seconds, laid) < least;
  };
  Plan best;
  Plan plan;  // one for all tries, since copies of plans are thousands of small allocations
  for (const double of_late : weights) {
    Timeline laid = as_it_is;
    Ground ground(planned.layout, bare);
    for (int i = 0; i < tries; ++i) {
      plan = bare;
      lay_flat(plan, planned.layout, laid.starts, laid.ends, ground, of_late);
      laid = in_time(plan, false);
      if (i + 1 < tries) ground = Ground(planned.layout, plan, laid.ends, laid.seconds);
      if (!is_better(laid.seconds, laid)) continue;  // less of the disk makes none faster
      const PlanTimes both{laid, in_time(plan, true).seconds};
      if (!is_better(both.mean_seconds(), laid)) continue;
      least = cost_of(both.mean_seconds(), laid);
      times = both;
      std::swap(best, plan);
    }
  }
  return best;
}

}  // namespace

double PlanTimes::mean_seconds() const {
  return (timeline.seconds + std::max(timeline.seconds, slow_disk_seconds)) / 2;
}

std::optional<PlanTimes> lay_first_flat(PlannedPrograms& planned, const PlanLinks& links, const PlanInTime& in_time,
                                        int tries, bool always) {
  if (!planned.fits() || planned.first_unplaced.instrs.empty()) return std::nullopt;
  PlanTimes times = times_of(planned.plans.front(), in_time);
  Plan best = best_laid(planned, times, in_time, tries, always);
  if (best.flat) {
    planned.plans.front() = std::move(best);
    check_plan(planned, 0, links);
  }
  return times;
}

void lay_others_flat(PlannedPrograms& planned, const RunChoices& choices, const PlanLinks& links,
                     const PlanInTime& in_time) {
  if (!planned.fits() || !planned.plans.front().flat) return;
  const Plan& first = planned.plans.front();
  const Timeline first_times = in_time(first, false);
  const Ground ground(planned.layout, first, first_times.ends, first_times.seconds);
  for (std::size_t p = 1; p < planned.plans.size(); ++p) {
    const Plan bare = unplaced_plan(planned, p, choices, links);
    const Timeline times = in_time(planned.plans[p], false);
    double least = std::numeric_limits<double>::infinity();
    for (const double of_late : weights) {
      Plan plan = bare;
      lay_flat(plan, planned.layout, times.starts, times.ends, ground, of_late);
      const Timeline laid = in_time(plan, false);
      if (cost_of(laid.seconds, laid) >= least) continue;
      least = cost_of(laid.seconds, laid);
      planned.plans[p] = std::move(plan);
    }
    check_plan(planned, p, links);
  }
}

}  // namespace spillway
