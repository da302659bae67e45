// Where a run with a device updates: the share of the parameters at which a step is shortest, as the simulator has it.
#include <algorithm>
#include <limits>
#include <map>

#include "base/error.h"
#include "plan/update_split.h"
#include "session/step_chooser.h"

namespace spillway {
namespace {

// Ops planned for choices, all together: a few seconds of one processor.
constexpr std::int64_t most_ops_for_updates = 400'000;
constexpr double negligible_updates = 0.01;  // share of a step

}  // namespace

// Where the device has room for all of a step that updates there, nothing moves and nothing is waited for; so nothing
// else is looked at if what the host would do of the updates takes the device next to nothing. The smallest budgets are
// those of the choices that follow where it has no room, so the first of these is planned before, which says them.
bool StepChooser::choose_all_on_device() {
  if (setup_.choices.device_bytes == 0) return false;
  ops_before_ = planner_.planned_ops();
  const WorkChoice of_others = first_choice(work_limits());
  planner_.score_of(of_others, first_ways(of_others));
  if (forced_device_updates(setup_.options).value_or(1) != 1) return false;
  const double share_before = setup_.choices.device_updates;
  setup_.choices.device_updates = 1;
  const WorkChoice choice = first_on_device().value_or(of_others);
  const WorkScore score_of_all = planner_.score_of(choice, first_ways(choice));
  const bool is_best = seconds_saved_by_host() < negligible_updates * score_of_all.seconds;
  if (score_of_all.fits && score_of_all.moves_nothing() && is_best) {
    setup_.work = {choice, score_of_all, {{choice, score_of_all}}};
    choose_way();
    const WorkScore of_asked = planner_.score();  // of the way that was asked for
    if (of_asked.fits && of_asked.moves_nothing()) return true;
  }
  setup_.choices.device_updates = share_before;
  return false;
}

// One micro-batch after the other takes the least of a device's memory, which is what is scarce.
std::optional<WorkChoice> StepChooser::first_on_device() const {
  if (setup_.choices.device_bytes == 0 || setup_.shape.micro_batches == 1) return std::nullopt;
  const WorkLimits limits = work_limits();
  WorkChoice choice = first_choice(limits);
  choice.order = limits.order.value_or(WorkOrder::by_micro_batch);
  return choice;
}

// What a step saves at most by updates on the host beside those of the device: where no state crosses the link.
double StepChooser::seconds_saved_by_host() const {
  const auto& [host, device] = setup_.choices.update;
  if (host == 0 || device == 0) return 0;
  const auto parameters = static_cast<double>(setup_.model.parameter_count());
  return parameters / device - parameters / (device + host);
}

// The steps were chosen for the split that was estimated. What they wait for is another thing with another split, so
// all of a step is chosen anew for the one that is taken; and where nothing is known of how fast either side updates,
// for all updates on the device before.
void StepChooser::choose_updates() {
  if (!setup_.planned.has_device() || !setup_.planned.fits() || forced_device_updates(setup_.options)) return;
  if (setup_.choices.update.host_parameters_per_second == 0) try_device_share(1);
  choose_share();
  try_device_share(setup_.choices.device_updates);
}

// Chooses the steps for this share of the updates, and stays with them where that is faster than what is planned.
void StepChooser::try_device_share(double share) {
  const Chosen before = chosen();
  setup_.choices.device_updates = share;
  choose_steps(setup_.work.choice);
  go_back_unless_faster(before);
}

void StepChooser::choose_share() {
  const auto groups = std::ssize(update_groups(*setup_.planned.programs.front(), setup_.planned.layout, 0));
  const std::int64_t most_ops = planner_.planned_ops() + most_ops_for_updates;
  std::map<double, double> known;
  const auto cost = [&](double share) {
    if (const auto found = known.find(share); found != known.end()) return found->second;
    if (planner_.planned_ops() > most_ops) return std::numeric_limits<double>::infinity();
    setup_.choices.device_updates = share;
    planner_.plan_steps();
    return known[share] = planner_.cost_of(planner_.score());
  };
  const double finest = 1 / static_cast<double>(std::max<std::ptrdiff_t>(groups, 1));
  setup_.choices.device_updates = choose_device_share(setup_.choices.device_updates, finest, cost);
  planner_.plan_steps();
}

std::string note_on_updates(const TrainingSetup& setup) {
  if (!setup.planned.has_device() || !setup.planned.fits()) return "";
  const UpdateSides sides = update_sides(setup.planned.plans.front(), *setup.planned.programs.front());
  const auto parameters = static_cast<double>(sides.host_parameters + sides.other_parameters);
  if (parameters == 0) return "";
  return fmt::format("updates: {} on the processor, {} on the device, which has {:.0f}% of the parameters",
                     sides.host_ops, sides.other_ops, 100 * static_cast<double>(sides.other_parameters) / parameters);
}

}  // namespace spillway
