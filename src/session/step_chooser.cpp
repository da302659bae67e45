#include "session/step_chooser.h"

namespace spillway {

void StepChooser::choose(const WorkChoice* near) {
  if (near != nullptr) most_ops_ = most_ops_for_estimate;
  if (choose_all_on_device()) return;
  std::optional<WorkChoice> before = first_on_device();
  if (near != nullptr && !before) before = recomputing_nothing(*near);
  choose_steps(before);
  choose_updates();
}

// `before` is tried first.
void StepChooser::choose_steps(const std::optional<WorkChoice>& before) {
  ops_before_ = planner_.planned_ops();
  WorkLimits limits = work_limits();
  limits.before = before;
  limits.most_ops = most_ops_;
  setup_.work =
      choose_work(limits, [&](const WorkChoice& choice) { return planner_.score_of(choice, first_ways(choice)); });
  if (!(setup_.work.choice == setup_.work.tried.back().choice))
    planner_.plan(setup_.work.choice, first_ways(setup_.work.choice));
  choose_way();
}

// Unless asked for: what moves nothing is taken at once, and what recomputes may for no other reason.
WorkChoice StepChooser::recomputing_nothing(WorkChoice choice) const {
  choice.recompute = first_choice(work_limits()).recompute;
  return choice;
}

WorkLimits StepChooser::work_limits() const {
  WorkLimits limits;
  limits.layers = setup_.config.model.num_hidden_layers;
  limits.micro_batches = setup_.shape.micro_batches;
  limits.max_disk_writes_per_day = setup_.options.max_disk_writes_per_day;
  limits.order = forced_order(setup_.options);
  limits.recompute = forced_recompute(setup_.options, limits.layers);
  limits.policy = policy_named(setup_.options.policy);
  limits.deferred_layers = forced_deferral(setup_.options, limits.layers);
  // A policy that is asked for has its own, and with a device each plan is two and what choosing gains is not known.
  if (limits.policy || setup_.choices.device_bytes > 0) limits.settling = default_settling;
  return limits;
}

// A step that clips is planned first as one that does so after backward.
std::vector<UpdateWay> StepChooser::first_ways(const WorkChoice& choice) const {
  if (setup_.options.max_grad_norm > 0) return {UpdateWay::after};
  return {choice.deferred_layers > 0 ? UpdateWay::deferred : UpdateWay::during};
}

}  // namespace spillway
