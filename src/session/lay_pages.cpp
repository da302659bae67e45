#include "session/lay_pages.h"

#include <array>
#include <utility>

#include "plan/flat.h"

namespace spillway {
namespace {

// Of a stay that begins late, some is waited for: more where the disk is what binds.
constexpr std::array weights = {0.5, 0.1, 0.02};

struct Laid {
  Plan plan;
  Timeline times;
  double mean_seconds = 0;  // with the whole disk and without, as choices are compared

  // Who attaches a page interrupts the others that compute, which the simulator does not know.
  double cost() const { return mean_seconds + times.attach_seconds; }
};

Laid timed(Plan plan, const PlanInTime& in_time) {
  Timeline times = in_time(plan, false);
  const double mean = (times.seconds + in_time(plan, true).seconds) / 2;
  return {std::move(plan), std::move(times), mean};
}

// The first plan. Each try goes by when things happened in the one before, and starts from where that one ended.
Laid best_laid(const PlannedPrograms& planned, const Plan& bare, const PlanInTime& in_time, int tries, bool always,
               double& weight) {
  const Laid as_it_is = timed(planned.plans.front(), in_time);
  Laid best = as_it_is;
  for (const double of_late : weights) {
    Timeline times = as_it_is.times;
    Ground ground(planned.layout, bare);
    for (int i = 0; i < tries; ++i) {
      Plan plan = bare;
      lay_flat(plan, planned.layout, times.starts, times.ends, ground, of_late);
      Laid next = timed(std::move(plan), in_time);
      times = next.times;
      ground = Ground(planned.layout, next.plan, times.ends, times.seconds);
      const bool is_first = always && !best.plan.flat;
      const bool is_slower = next.mean_seconds > as_it_is.mean_seconds && !always;
      if (!is_first && (is_slower || next.cost() >= best.cost())) continue;
      weight = of_late;
      best = std::move(next);
    }
  }
  return best;
}

}  // namespace

void lay_pages_flat(PlannedPrograms& planned, const RunChoices& choices, const PlanLinks& links,
                    const PlanInTime& in_time, int tries, bool always) {
  if (!planned.fits() || planned.has_device()) return;
  const Plan& as_it_is = planned.plans.front();
  if (as_it_is.pages > most_pages_laid_flat || std::ssize(as_it_is.instrs) > most_instrs_laid_flat) return;
  double weight = weights.front();
  const Laid first = best_laid(planned, unplaced_plan(planned, 0, choices, links), in_time, tries, always, weight);
  if (!first.plan.flat) return;
  planned.plans.front() = first.plan;
  const Ground ground(planned.layout, first.plan, first.times.ends, first.times.seconds);
  for (std::size_t p = 1; p < planned.plans.size(); ++p) {
    const Timeline times = in_time(planned.plans[p], false);
    Plan plan = unplaced_plan(planned, p, choices, links);
    lay_flat(plan, planned.layout, times.starts, times.ends, ground, weight);
    planned.plans[p] = std::move(plan);
  }
  for (std::size_t p = 0; p < planned.plans.size(); ++p) check_plan(planned, p, links);
}

}  // namespace spillway
