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

// With the whole disk and with less of it, as choices are compared (WorkScore::mean_seconds).
double mean_seconds(const Plan& plan, const Timeline& times, const PlanInTime& in_time) {
  return (times.seconds + std::max(times.seconds, in_time(plan, true).seconds)) / 2;
}

// The first plan. Each try goes by when things happened in the one before, and starts from where that one ended.
Plan best_laid(const PlannedPrograms& planned, const Plan& bare, const PlanInTime& in_time, int tries, bool always) {
  Plan best = planned.plans.front();
  const Timeline as_it_is = in_time(best, false);
  double most = std::numeric_limits<double>::infinity();
  double least = most;
  if (!always) {
    most = mean_seconds(best, as_it_is, in_time);
    least = cost_of(most, as_it_is);
  }
  const auto is_better = [&](double seconds, const Timeline& times) {
    return seconds <= most && cost_of(seconds, times) < least;
  };
  for (const double of_late : weights) {
    Timeline times = as_it_is;
    Ground ground(planned.layout, bare);
    for (int i = 0; i < tries; ++i) {
      Plan plan = bare;
      lay_flat(plan, planned.layout, times.starts, times.ends, ground, of_late);
      times = in_time(plan, false);
      if (i + 1 < tries) ground = Ground(planned.layout, plan, times.ends, times.seconds);
      if (!is_better(times.seconds, times)) continue;  // less of the disk makes none faster
      const double mean = mean_seconds(plan, times, in_time);
      if (!is_better(mean, times)) continue;
      least = cost_of(mean, times);
      best = std::move(plan);
    }
  }
  return best;
}

}  // namespace

void lay_first_flat(PlannedPrograms& planned, const RunChoices& choices, const PlanLinks& links,
                    const PlanInTime& in_time, int tries, bool always) {
  if (!planned.fits() || planned.has_device()) return;
  const Plan& as_it_is = planned.plans.front();
  if (as_it_is.pages > most_pages_laid_flat || std::ssize(as_it_is.instrs) > most_instrs_laid_flat) return;
  Plan best = best_laid(planned, unplaced_plan(planned, 0, choices, links), in_time, tries, always);
  if (!best.flat) return;
  planned.plans.front() = std::move(best);
  check_plan(planned, 0, links);
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
