#include "session/step_chooser.h"

namespace spillway {
namespace {

constexpr std::int64_t most_ops_to_look_at = most_ops_for_work / 24;  // of a step: then all looks take a second

}  // namespace

// What leaves the device for the disk goes past the host's memory or by way of it, whichever the rates of disk and link
// make faster: another order of work, and other updates on the device, may be best on one way than on the other.
void StepChooser::choose(const WorkChoice* near) {
  if (near != nullptr) most_ops_ = most_ops_for_estimate;
  const double share_at_first = setup_.choices.device_updates;
  choose_on_path(near);
  if (!setup_.choices.chooses_direct || !setup_.planned.fits() || !moves_directly(setup_.planned)) return;
  const Chosen past_the_host = chosen();
  setup_.choices.direct = false;
  setup_.choices.device_updates = share_at_first;
  choose_on_path(near);
  go_back_unless_faster(past_the_host);
}

StepChooser::Chosen StepChooser::chosen() const {
  return {setup_.work, planner_.ways(), setup_.choices.device_updates, setup_.choices.direct,
          planner_.cost_of(planner_.score())};
}

void StepChooser::go_back_unless_faster(const Chosen& before) {
  if (planner_.cost_of(planner_.score()) < before.cost) return;
  setup_.choices.device_updates = before.device_updates;
  setup_.choices.direct = before.direct;
  setup_.work = before.work;
  planner_.plan(before.work.choice, before.ways);
}

void StepChooser::choose_on_path(const WorkChoice* near) {
  if (choose_all_on_device()) return;
  std::optional<WorkChoice> before = first_on_device();
  if (near != nullptr && !before) before = near_with_room(*near);
  if (!before) before = choice_with_room();
  choose_steps(before);
  choose_updates();
}

// `before` is tried first.
void StepChooser::choose_steps(const std::optional<WorkChoice>& before) {
  ops_before_ = planner_.planned_ops();
  WorkLimits limits = work_limits();
  limits.before = before;
  limits.most_ops = most_ops_;
  searched_way_ = way_to_search(before.value_or(first_choice(limits)));
  const auto search = [&] {
    setup_.work =
        choose_work(limits, [&](const WorkChoice& choice) { return planner_.score_of(choice, first_ways(choice)); });
  };
  search();
  if (!setup_.work.score.fits && searched_way_ != UpdateWay::after) {
    searched_way_ = UpdateWay::after;
    search();
  }
  if (!(setup_.work.choice == setup_.work.tried.back().choice))
    planner_.plan(setup_.work.choice, first_ways(setup_.work.choice));
  choose_way();
}

// Looks at what may be chosen, so that the smallest budgets are known: of steps of many ops no further than needed.
// Where the first has no room, one that has.
std::optional<WorkChoice> StepChooser::choice_with_room() {
  const WorkLimits limits = work_limits();
  const WorkChoice first = first_choice(limits);
  std::vector<Recompute> kinds{first.recompute};
  const auto layers = static_cast<std::int32_t>(limits.layers);
  for (const RecomputeKind kind : {RecomputeKind::cheap, RecomputeKind::attention, RecomputeKind::block}) {
    if (!limits.recompute) kinds.push_back({kind, layers});
  }
  std::optional<WorkChoice> with_room;
  std::int64_t ops_of_one = 0;
  for (const Recompute& recompute : kinds) {
    for (const WorkOrder order : orders_of(limits)) {
      WorkChoice choice = first;
      choice.order = order;
      choice.recompute = recompute;
      if (with_room && recompute != first.recompute && ops_of_one > most_ops_to_look_at) break;
      const std::int64_t ops_before = planner_.planned_ops();
      const bool has_room = planner_.has_room(choice, first_ways(choice));
      ops_of_one = planner_.planned_ops() - ops_before;
      if (has_room && !with_room) with_room = choice;
    }
  }
  return with_room == first ? std::nullopt : with_room;
}

// Recomputing nothing unless asked for or for want of room: what moves nothing is taken at once, and what recomputes
// may for no other reason.
std::optional<WorkChoice> StepChooser::near_with_room(const WorkChoice& near) {
  WorkChoice choice = near;
  choice.recompute = first_choice(work_limits()).recompute;
  for (const WorkChoice& one : {choice, near}) {
    if (planner_.has_room(one, first_ways(one))) return one;
  }
  return std::nullopt;
}

WorkLimits StepChooser::work_limits() const {
  WorkLimits limits;
  limits.layers = setup_.config.model.num_hidden_layers;
  limits.micro_batches = setup_.shape.micro_batches;
  limits.max_disk_writes_per_day = setup_.options.max_disk_writes_per_day;
  limits.commits_each_step = setup_.choices.commits == Commits::all;
  limits.order = forced_order(setup_.options);
  limits.recompute = forced_recompute(setup_.options, limits.layers);
  limits.policy = policy_named(setup_.options.policy);
  limits.deferred_layers = forced_deferral(setup_.options, limits.layers);
  // A policy that is asked for has its own, and with a device each plan is two and what choosing gains is not known.
  if (limits.policy || setup_.choices.device_bytes > 0) limits.settling = default_settling;
  return limits;
}

// What waits of a step that updates after backward says little of one that does so earlier. Where something moves, most
// defer their updates, or do as if nothing clipped, which moves the same bytes at other times.
UpdateWay StepChooser::way_to_search(const WorkChoice& first) {
  const bool may_defer = setup_.options.max_grad_norm > 0 && setup_.options.clip_mode != "after";
  if (!may_defer || setup_.choices.device_bytes > 0 || setup_.choices.commits == Commits::all) return UpdateWay::after;
  const WorkScore score = planner_.score_of(first, {UpdateWay::after});
  return score.fits && !score.moves_nothing() ? UpdateWay::deferred : UpdateWay::after;
}

std::vector<UpdateWay> StepChooser::first_ways(const WorkChoice& choice) const {
  if (setup_.options.max_grad_norm > 0) return {searched_way_};
  return {choice.deferred_layers > 0 ? UpdateWay::deferred : UpdateWay::during};
}

}  // namespace spillway
