#include "session/refined_rates.h"

#include <algorithm>

#include "base/bytes.h"
#include "probe/probe.h"
#include "probe/rate_cache.h"
#include "session/run_catalog.h"
#include "sim/op_rates.h"

namespace spillway {
namespace {

constexpr std::int64_t least_pages_bytes = 16 * mib;  // as for measuring: smaller steps say nothing

// What each op would have taken with an idle disk; negative: it was not seen.
class OpTimes {
 public:
  OpTimes(std::size_t ops, std::span<const Plan> plans, std::int32_t step, double slowdown)
      : seconds_(ops, -1), plans_(plans), step_(step), slowdown_(slowdown) {}

  void take(const Event& event) {
    const double now = static_cast<double>(event.time_ns) * 1e-9;
    idle_equal_ += (now - before_) / (under_way_ > 0 ? slowdown_ : 1);
    before_ = now;
    if (event.kind == EventKind::move_submit) ++under_way_;
    if (event.kind == EventKind::move_complete) under_way_ = std::max(0, under_way_ - 1);
    const bool is_ours = event.step == step_ && event.plan < plans_.size() && plans_[event.plan].program == 0;
    if (!is_ours) return;
    if (event.kind == EventKind::op_begin) begun_ = idle_equal_;
    if (event.kind == EventKind::op_end && event.subject >= 0 &&
        static_cast<std::size_t>(event.subject) < seconds_.size())
      seconds_[static_cast<std::size_t>(event.subject)] = idle_equal_ - begun_;
  }

  const std::vector<double>& seconds() const { return seconds_; }

 private:
  std::vector<double> seconds_;
  std::span<const Plan> plans_;
  std::int32_t step_;
  double slowdown_;
  int under_way_ = 0;
  double before_ = 0;
  double idle_equal_ = 0;  // seconds so far, those beside a busy disk worth less
  double begun_ = 0;
};

}  // namespace

bool refine_ops(const Program& program, std::span<const Plan> plans, std::span<const Event> events, std::int32_t step,
                MachineRates& rates) {
  OpTimes times(program.ops.size(), plans, step, rates.compute_slowdown);
  for (const Event& event : events) times.take(event);
  const std::vector<double>& seconds = times.seconds();
  if (std::any_of(seconds.begin(), seconds.end(), [](double s) { return s < 0; })) return false;
  const OpClasses classes = classes_of(program);
  std::vector<double> sums(classes.classes.size(), 0);
  for (std::size_t op = 0; op < seconds.size(); ++op) sums[classes.of_op[op]] += seconds[op];
  for (std::size_t c = 0; c < sums.size(); ++c) {
    rates.set(
        {classes.classes[c], rates.threads, sums[c] / static_cast<double>(classes.count[c]), RateSource::measured});
  }
  return true;
}

void keep_op_times(const TrainingSetup& setup, const EventRecorder& recorder, std::int64_t step) {
  const PlannedPrograms& planned = setup.planned;
  if (!setup.options.machine.empty() || planned.plans.front().pages * planned.layout.page_bytes < least_pages_bytes)
    return;
  std::optional<MachineRates> rates = load_rates(cache_directory(), identify_machine(), setup.choices.threads);
  if (!rates) return;
  const std::vector<Event> events = events_of(recorder);
  if (refine_ops(*planned.programs.front(), planned.plans, events, static_cast<std::int32_t>(step), *rates))
    share_rates(cache_directory(), *rates, true);
}

}  // namespace spillway
