// Which way the steps of a run that clips go: what gives way and what is kept is chosen for each, and then the way.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "session/setup.h"
#include "sim/simulate.h"

namespace spillway {

// After backward is planned already. Nothing is gained by updating earlier where nothing moves. What does not fit, or
// has nothing to do, is left out.
void TrainingSetup::choose_way() {
  if (options.max_grad_norm == 0 || options.clip_mode == "after" || !planned.fits()) return;
  const std::vector<UpdateWay> after{UpdateWay::after};
  if (options.clip_mode != "auto") {
    const std::vector<UpdateWay> asked{options.clip_mode == "deferred" ? UpdateWay::deferred : UpdateWay::speculative};
    if (const std::optional<WorkChosen> chosen = plan_best_of(asked)) {
      take_work(*chosen);
    } else {
      plan_work(work.choice, after);
    }
    return;
  }
  const Plan& plan = planned.plans.front();
  if (plan.traffic.read_bytes + plan.traffic.write_bytes + plan.up_bytes + plan.down_bytes == 0) return;
  std::vector<std::vector<UpdateWay>> candidates{{UpdateWay::deferred}};
  if (!planned.has_device()) candidates.push_back({UpdateWay::speculative, UpdateWay::deferred});
  const std::vector<UpdateWay>* best = &after;
  const std::vector<UpdateWay>* planned_now = &after;
  std::optional<WorkChosen> work_of_best;
  const bool after_may = work.score.writes_at_most(options.max_disk_writes_per_day);
  double seconds = after_may ? work.score.seconds : std::numeric_limits<double>::infinity();
  for (const std::vector<UpdateWay>& ways : candidates) {
    std::optional<WorkChosen> chosen = plan_best_of(ways);
    planned_now = &ways;
    if (!chosen) continue;
    lay_others();
    if (!may_write_as(ways)) continue;
    const ClipCosts costs = simulated_clip_costs();
    if (ways.size() > 1 && break_even_share(costs) == 0) continue;  // it would never speculate
    const double unclipped = std::min(costs.speculative, costs.deferred);
    if (unclipped >= seconds * (1 - least_gain)) continue;
    best = &ways;
    work_of_best = std::move(chosen);
    seconds = unclipped;
  }
  if (work_of_best) take_work(*work_of_best);
  if (planned_now != best) plan_work(work.choice, *best);
}

// What gives way and what is kept was chosen for a step that updates after backward, and is chosen anew for one that
// goes these ways: it waits elsewhere. Its order and what it recomputes stay. Leaves the choice planned; nothing where
// no step can go so.
std::optional<WorkChosen> TrainingSetup::plan_best_of(const std::vector<UpdateWay>& ways) {
  WorkLimits limits = work_limits();
  limits.order = work.choice.order;
  limits.recompute = work.choice.recompute;
  limits.before = work.choice;
  limits.most_ops = std::max<std::int64_t>(0, most_ops_ - planned_ops_);
  WorkChosen chosen = choose_work(limits, [&](const WorkChoice& choice) { return score_of(choice, ways); });
  if (!chosen.score.fits) return std::nullopt;
  if (!(chosen.choice == chosen.tried.back().choice)) plan_work(chosen.choice, ways);
  return chosen;
}

// What was tried before stays what the choice is compared with.
void TrainingSetup::take_work(const WorkChosen& chosen) {
  work.choice = chosen.choice;
  work.score = chosen.score;
}

// On the steps as they are planned at last.
std::string TrainingSetup::note_on_work() const {
  const UpdateWay way = steps.usual().way;
  const bool asked = options.clip_mode != "auto" && options.clip_mode != "after";
  if (options.max_grad_norm > 0 && asked && way != UpdateWay::after && !may_write_as({way})) {
    return fmt::format("clip_mode {} writes more a day than max_disk_writes_per_day; auto would leave it out",
                       options.clip_mode);
  }
  std::string note = note_on(work.choice, work.score, work.tried, work_limits());
  const bool compares = work.score.writes_at_most(options.max_disk_writes_per_day);
  const bool other_way = options.max_grad_norm > 0 && way != UpdateWay::after;
  if (compares && other_way && !note.empty()) note += ", updated after backward";
  return note;
}

// Of ways that are planned: none writes more than is allowed.
bool TrainingSetup::may_write_as(const std::vector<UpdateWay>& ways) const {
  if (options.max_disk_writes_per_day == 0) return true;
  return std::all_of(ways.begin(), ways.end(), [this](UpdateWay way) {
    return score(steps.index_of_step(way)).writes_at_most(options.max_disk_writes_per_day);
  });
}

// With the rates that are known without measuring, or assumed; endless for a way that is not planned. Updates alone run
// from rest to rest; a deferred step has its share of those that complete the updates of steps that commit.
ClipCosts TrainingSetup::simulated_clip_costs() const {
  const auto step_seconds = [&](UpdateWay way) {
    const std::int32_t step = steps.index_of_step(way);
    if (step < 0) return std::numeric_limits<double>::infinity();
    return simulated(planned.plans[static_cast<std::size_t>(step)], rates_of(step)).seconds;
  };
  const auto update_seconds = [&](std::int32_t update) {
    return simulate(planned.plans[static_cast<std::size_t>(update)], planned.layout, rates_of(update)).seconds;
  };
  ClipCosts costs;
  costs.speculative = step_seconds(UpdateWay::speculative);
  if (steps.redo) costs.redo = update_seconds(steps.index_of_redo());
  costs.deferred = step_seconds(UpdateWay::deferred);
  if (options.save_steps > 0 && steps.flush)
    costs.deferred += update_seconds(steps.index_of_flush()) / static_cast<double>(options.save_steps);
  return costs;
}

}  // namespace spillway
