// Which way the steps of a run that clips go: what gives way and what is kept is chosen for each, and then the way.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "session/step_chooser.h"

namespace spillway {

// One way is planned already. Nothing is gained by updating earlier where nothing moves. What does not fit, or has
// nothing to do, is left out, and where it is asked for gives way to updates after backward.
void StepChooser::choose_way() {
  if (setup_.options.max_grad_norm == 0 || setup_.options.clip_mode == "after" || !setup_.planned.fits()) return;
  if (setup_.options.clip_mode != "auto") {
    const UpdateWay asked = setup_.options.clip_mode == "deferred" ? UpdateWay::deferred : UpdateWay::speculative;
    if (asked == searched_way_) return;
    if (const std::optional<WorkChosen> chosen = plan_best_of({asked})) return take_work(*chosen);
    if (const std::optional<WayChosen> after = try_ways({UpdateWay::after})) take_work(after->work);
    return;
  }
  std::vector<std::vector<UpdateWay>> candidates{{UpdateWay::after}};
  const Plan& plan = setup_.planned.plans.front();
  if (plan.traffic.read_bytes + plan.traffic.write_bytes + plan.up_bytes + plan.down_bytes > 0) {
    candidates.push_back({UpdateWay::deferred});
    if (!setup_.planned.has_device()) candidates.push_back({UpdateWay::speculative, UpdateWay::deferred});
  }
  WayChosen best{setup_.work, {searched_way_}, std::numeric_limits<double>::infinity()};
  auto to_search =
      std::count_if(candidates.begin(), candidates.end(), [&](const auto& ways) { return !is_searched(ways); });
  for (const std::vector<UpdateWay>& ways : candidates) {
    const double share = 1.0 / static_cast<double>(std::max<std::ptrdiff_t>(1, to_search));
    std::optional<WayChosen> tried = try_ways(ways, share);
    if (!is_searched(ways)) --to_search;
    if (tried && tried->seconds < best.seconds * (1 - least_gain)) best = std::move(*tried);
  }
  take_work(best.work);
  if (planner_.ways() != best.ways) planner_.plan(best.work.choice, best.ways);
}

// Leaves them planned. Endless where a step after backward writes more than it may, since something has to be taken.
std::optional<StepChooser::WayChosen> StepChooser::try_ways(const std::vector<UpdateWay>& ways, double share) {
  if (is_searched(ways) && planner_.ways() != ways) planner_.plan(setup_.work.choice, ways);
  const std::optional<WorkChosen> chosen = is_searched(ways) ? std::optional(setup_.work) : plan_best_of(ways, share);
  if (!chosen) return std::nullopt;
  if (ways.front() == UpdateWay::after) {
    const bool may = chosen->score.writes_at_most(setup_.options.max_disk_writes_per_day);
    return WayChosen{*chosen, ways, may ? chosen->score.seconds : std::numeric_limits<double>::max()};
  }
  planner_.lay_others();
  if (!may_write_as(ways)) return std::nullopt;
  const ClipCosts costs = simulated_clip_costs();
  if (ways.size() > 1 && break_even_share(costs) == 0) return std::nullopt;  // it would never speculate
  return WayChosen{*chosen, ways, std::min(costs.speculative, costs.deferred)};
}

// The work was chosen for a step that goes another way, and is chosen anew near that for one that goes these: it waits
// elsewhere. Leaves the choice planned; nothing where no step can go so.
std::optional<WorkChosen> StepChooser::plan_best_of(const std::vector<UpdateWay>& ways, double share) {
  WorkLimits limits = work_limits();
  limits.before = setup_.work.choice;
  limits.stays_near = true;
  const std::int64_t left = std::max<std::int64_t>(0, most_ops_ - (planner_.planned_ops() - ops_before_));
  limits.most_ops = static_cast<std::int64_t>(share * static_cast<double>(left));
  WorkChosen chosen = choose_work(limits, [&](const WorkChoice& choice) { return planner_.score_of(choice, ways); });
  if (!chosen.score.fits) return std::nullopt;
  if (!(chosen.choice == chosen.tried.back().choice)) planner_.plan(chosen.choice, ways);
  return chosen;
}

// What was tried before stays what the choice is compared with.
void StepChooser::take_work(const WorkChosen& chosen) {
  setup_.work.choice = chosen.choice;
  setup_.work.score = chosen.score;
}

std::string StepChooser::note_on_work() const {
  const UpdateWay way = setup_.steps.usual().way;
  const bool asked = setup_.options.clip_mode != "auto" && setup_.options.clip_mode != "after";
  if (setup_.options.max_grad_norm > 0 && asked && way != UpdateWay::after && !may_write_as({way})) {
    return fmt::format("clip_mode {} writes more a day than max_disk_writes_per_day; auto would leave it out",
                       setup_.options.clip_mode);
  }
  std::string_view way_of_tried;
  if (setup_.options.max_grad_norm > 0 && way != searched_way_)
    way_of_tried = searched_way_ == UpdateWay::after ? ", clipping after backward" : ", clipping deferred";
  return note_on(setup_.work.choice, setup_.work.score, setup_.work.tried, work_limits(), way_of_tried);
}

// Of ways that are planned: none writes more than is allowed.
bool StepChooser::may_write_as(const std::vector<UpdateWay>& ways) const {
  if (setup_.options.max_disk_writes_per_day == 0) return true;
  return std::all_of(ways.begin(), ways.end(), [this](UpdateWay way) {
    return planner_.score(setup_.steps.index_of_step(way)).writes_at_most(setup_.options.max_disk_writes_per_day);
  });
}

ClipCosts StepChooser::simulated_clip_costs() const {
  const auto step_seconds = [&](UpdateWay way) {
    const std::int32_t step = setup_.steps.index_of_step(way);
    if (step < 0) return std::numeric_limits<double>::infinity();
    return setup_.simulated(setup_.planned.plans[static_cast<std::size_t>(step)], planner_.rates_of(step)).seconds;
  };
  const auto update_seconds = [&](std::int32_t update) {
    return setup_.simulated(setup_.planned.plans[static_cast<std::size_t>(update)], planner_.rates_of(update)).seconds;
  };
  ClipCosts costs;
  costs.speculative = step_seconds(UpdateWay::speculative);
  if (setup_.steps.redo) costs.redo = update_seconds(setup_.steps.index_of_redo());
  costs.deferred = step_seconds(UpdateWay::deferred);
  if (setup_.options.save_steps > 0 && setup_.steps.flush)
    costs.deferred += update_seconds(setup_.steps.index_of_flush()) / static_cast<double>(setup_.options.save_steps);
  return costs;
}

}  // namespace spillway
