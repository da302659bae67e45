// Where a run with a device updates: the share of the parameters at which a step is shortest, as the simulator has it.
#include <cmath>
#include <limits>
#include <map>

#include "base/bytes.h"
#include "base/error.h"
#include "plan/update_split.h"
#include "session/setup.h"

namespace spillway {
namespace {

// Ops planned for choices, all together: a few seconds of one processor.
constexpr std::int64_t most_ops_for_updates = 400'000;
constexpr double more_than_any_step = 1e9;  // seconds

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

// By the closed form, where the rates are known; otherwise nothing crosses the link that need not.
double TrainingSetup::estimated_device_updates() const {
  const UpdateRates& rates = choices.update;
  if (rates.host_parameters_per_second == 0 || rates.device_parameters_per_second == 0) return 0;
  return balanced_device_share(rates, choices.link, update_bytes(choices.dtype, options.moments == "8bit"));
}

// As choose_work: a share above max_disk_writes_per_day comes after all under it, by what it writes a step.
void TrainingSetup::choose_updates() {
  if (!planned.has_device() || !planned.fits() || forced_device_updates(options)) return;
  const auto groups = std::ssize(update_groups(*planned.programs.front(), planned.layout, 0));
  const std::int64_t most_ops = planned_ops_ + most_ops_for_updates;
  std::map<double, double> known;
  const auto may = [&](const WorkScore& of) { return of.writes_at_most(options.max_disk_writes_per_day); };
  const auto cost = [&](double share) {
    if (const auto found = known.find(share); found != known.end()) return found->second;
    if (planned_ops_ > most_ops) return std::numeric_limits<double>::infinity();
    choices.device_updates = share;
    plan_steps();
    const WorkScore now = score();
    if (!now.fits) return known[share] = std::numeric_limits<double>::infinity();
    return known[share] = may(now) ? now.seconds : more_than_any_step + now.writes_per_step();
  };
  const double finest = 1 / static_cast<double>(std::max<std::ptrdiff_t>(groups, 1));
  choices.device_updates = choose_device_share(estimated_device_updates(), finest, cost);
  plan_steps();
  // What was tried is compared at the share that was estimated, unless the limit says otherwise.
  const WorkScore now = score();
  if (may(now) != may(work.score)) work.score = now;
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
