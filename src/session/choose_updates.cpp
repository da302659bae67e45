// Where a run with a device updates: the share of the parameters at which a step is shortest, as the simulator has it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/bytes.h"
#include "base/error.h"
#include "plan/update_split.h"
#include "probe/probe.h"
#include "session/setup.h"

namespace spillway {
namespace {

// Ops planned for choices, all together: a few seconds of one processor.
constexpr std::int64_t most_ops_for_updates = 400'000;
constexpr double update_seconds = 0.1;                 // of timing updates
constexpr std::int64_t most_update_bytes = 256 * mib;  // beyond the caches of most processors
constexpr double more_than_any_step = 1e9;             // seconds
constexpr double negligible_updates = 0.01;            // share of a step

UpdateBytes update_bytes(DType dtype, bool packed) {
  const double moments = packed ? 2 : 8;
  const auto weight = static_cast<double>(size_of(dtype));
  return {.state = moments + (dtype == DType::bf16 ? 2 : 0), .gradient = weight, .weight = weight};
}

}  // namespace

double TrainingSetup::update_memory_bytes() const {
  const UpdateBytes of = update_bytes(choices.dtype, options.moments == "8bit");
  return 2 * (of.state + of.weight) + of.gradient;
}

// Of the processor beside an accelerator, in parameters a second: as it is known, or else timed now, since a guess
// would send updates to the wrong side. A machine file is of another machine perhaps, of which nothing can be timed.
double TrainingSetup::host_update_rate() const {
  const MachineRates rates = recall_machine(options.machine, choices, accelerator_page_bytes).rates;
  if (rates.update.host_parameters_per_second > 0) return rates.update.host_parameters_per_second;
  const bool packed = options.moments == "8bit";
  double bandwidth = known_update_bandwidth(rates, choices.dtype, packed);
  if (bandwidth == 0 && !options.machine.empty()) bandwidth = rates.memory_bandwidth();
  if (bandwidth == 0) {
    const std::int64_t memory_bytes = std::clamp(choices.budget_bytes / 4, least_update_bytes, most_update_bytes);
    bandwidth = updates_now(choices.dtype, packed, choices.threads, memory_bytes, update_seconds);
  }
  return bandwidth / update_memory_bytes();
}

// By the closed form, where the rates are known; otherwise nothing crosses the link that need not.
double TrainingSetup::estimated_device_updates() const {
  const UpdateRates& rates = choices.update;
  if (rates.host_parameters_per_second == 0 || rates.device_parameters_per_second == 0) return 0;
  return balanced_device_share(rates, choices.link, update_bytes(choices.dtype, options.moments == "8bit"));
}

// As choose_work: what is above max_disk_writes_per_day comes after all under it, by what it writes a step.
double TrainingSetup::cost_of(const WorkScore& of) const {
  if (!of.fits) return std::numeric_limits<double>::infinity();
  return of.writes_at_most(options.max_disk_writes_per_day) ? of.mean_seconds()
                                                            : more_than_any_step + of.writes_per_step();
}

// One micro-batch after the other takes the least of a device's memory, which is what is scarce.
std::optional<WorkChoice> TrainingSetup::first_on_device() const {
  if (choices.device_bytes == 0 || shape.micro_batches == 1) return std::nullopt;
  const WorkLimits limits = work_limits();
  WorkChoice choice = first_choice(limits);
  choice.order = limits.order.value_or(WorkOrder::by_micro_batch);
  return choice;
}

// What a step saves at most by updates on the host beside those of the device: where no state crosses the link.
double TrainingSetup::seconds_saved_by_host() const {
  const auto& [host, device] = choices.update;
  if (host == 0 || device == 0) return 0;
  const auto parameters = static_cast<double>(model.parameter_count());
  return parameters / device - parameters / (device + host);
}

// Where the device has room for all of a step that updates there, nothing moves and nothing is waited for; so nothing
// else is looked at if what the host would do of the updates takes the device next to nothing. The smallest budgets are
// those of the choices that follow where it has no room, so the first of these is planned before, which says them.
bool TrainingSetup::choose_all_on_device() {
  if (choices.device_bytes == 0) return false;
  planned_ops_ = 0;
  const WorkChoice of_others = first_choice(work_limits());
  score_of(of_others, first_ways(of_others));
  if (forced_device_updates(options).value_or(1) != 1) return false;
  const double share_before = choices.device_updates;
  choices.device_updates = 1;
  const WorkChoice choice = first_on_device().value_or(of_others);
  const WorkScore score_of_all = score_of(choice, first_ways(choice));
  const bool is_best = seconds_saved_by_host() < negligible_updates * score_of_all.seconds;
  if (score_of_all.fits && score_of_all.moves_nothing() && is_best) {
    work = {choice, score_of_all, {{choice, score_of_all}}};
    choose_way();
    if (score().moves_nothing()) return true;  // also the way that was asked for
  }
  choices.device_updates = share_before;
  return false;
}

// The steps were chosen for the split that was estimated. What they wait for is another thing with another split, so
// all of a step is chosen anew for the one that is taken; and where nothing is known of how fast either side updates,
// for all updates on the device before.
void TrainingSetup::choose_updates() {
  if (!planned.has_device() || !planned.fits() || forced_device_updates(options)) return;
  if (choices.update.host_parameters_per_second == 0) try_device_share(1);
  choose_share();
  try_device_share(choices.device_updates);
}

// Chooses the steps for this share of the updates, and stays with them where that is faster than what is planned.
void TrainingSetup::try_device_share(double share) {
  const double share_before = choices.device_updates;
  const WorkChosen work_before = work;
  const std::vector<UpdateWay> ways_before = ways_;
  const double cost_before = cost_of(score());
  choices.device_updates = share;
  choose_steps(work.choice);
  if (cost_of(score()) < cost_before) return;
  choices.device_updates = share_before;
  work = work_before;
  plan_work(work.choice, ways_before);
}

void TrainingSetup::choose_share() {
  const auto groups = std::ssize(update_groups(*planned.programs.front(), planned.layout, 0));
  const std::int64_t most_ops = planned_ops_ + most_ops_for_updates;
  std::map<double, double> known;
  const auto cost = [&](double share) {
    if (const auto found = known.find(share); found != known.end()) return found->second;
    if (planned_ops_ > most_ops) return std::numeric_limits<double>::infinity();
    choices.device_updates = share;
    plan_steps();
    return known[share] = cost_of(score());
  };
  const double finest = 1 / static_cast<double>(std::max<std::ptrdiff_t>(groups, 1));
  choices.device_updates = choose_device_share(choices.device_updates, finest, cost);
  plan_steps();
}

void TrainingSetup::say_where_updates_run() {
  if (!planned.has_device() || !planned.fits()) return;
  const UpdateSides sides = update_sides(planned.plans.front(), *planned.programs.front());
  const auto parameters = static_cast<double>(sides.host_parameters + sides.other_parameters);
  if (parameters == 0) return;
  notes.push_back(fmt::format("updates: {} on the processor, {} on the device, which has {:.0f}% of the parameters",
                              sides.host_ops, sides.other_ops,
                              100 * static_cast<double>(sides.other_parameters) / parameters));
}

}  // namespace spillway
