#include "session/refined_rates.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"
#include "ops/matmul/matmul.h"
#include "probe/probe.h"
#include "probe/rate_cache.h"
#include "session/run_catalog.h"
#include "sim/op_rates.h"

namespace spillway {
namespace {

constexpr std::int64_t least_pages_bytes = 16 * mib;  // as for measuring: smaller steps say nothing
constexpr double most_slower = 0.1;
constexpr double canary_seconds = 0.1;

// What most of a step's time is made of.
DType product_dtype(const TrainingSetup& setup) {
  return setup.choices.dtype == DType::bf16 && matmul_has_bf16() ? DType::bf16 : DType::f32;
}

// What each op would have taken with an idle disk; negative: it was not seen.
class OpTimes {
 public:
  OpTimes(std::size_t ops, std::span<const Plan> plans, std::int32_t step, double slowdown)
      : seconds_(ops, -1), plans_(plans), step_(step), slowdown_(slowdown) {}

  void take(const Event& event) {
    const double now = static_cast<double>(event.time_ns) * 1e-9;
    idle_equal_ += (now - before_) / (under_way_ > 0 ? slowdown_ : 1);
    before_ = now;
    const bool of_disk = !is_of_link(event.lane);
    if (event.kind == EventKind::move_submit && of_disk) ++under_way_;
    if (event.kind == EventKind::move_complete && of_disk) under_way_ = std::max(0, under_way_ - 1);
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

bool refine_ops(const Program& program, std::span<const Plan> plans, const VisitEvents& events, std::int32_t step,
                MachineRates& rates) {
  OpTimes times(program.ops.size(), plans, step, rates.compute_slowdown);
  events([&](const Event& event) { times.take(event); });
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

bool is_undisturbed(double known, double before, double after) {
  return std::min(before, after) >= (1 - most_slower) * known;
}

KeptOpTimes::KeptOpTimes(const TrainingSetup& setup) : setup_(setup) {
  const PlannedPrograms& planned = setup.planned;
  const bool says_something = planned.probe_bytes() >= least_pages_bytes;
  const UpdateRates& held = setup.choices.update;  // these say nothing of the machine, nor does a disk that is slowed
  const bool is_held = held.host_parameters_per_second > 0 || held.device_parameters_per_second > 0 ||
                       setup.options.disk_bytes_per_second > 0;
  const bool is_elsewhere = setup.choices.accelerator != nullptr;  // the ops' times are a device's
  if (setup.options.machine.empty() && says_something && !is_held && !is_elsewhere && known()) before_ = products();
}

std::optional<MachineRates> KeptOpTimes::known() const {
  return load_rates(cache_directory(), identify_machine(), setup_.choices.threads);
}

double KeptOpTimes::products() const {
  return products_now(product_dtype(setup_), static_cast<int>(setup_.choices.threads), canary_seconds);
}

std::string KeptOpTimes::keep(const EventRecorder& recorder, std::int64_t step) const {
  std::optional<MachineRates> rates = before_ > 0 ? known() : std::nullopt;
  if (!rates) return {};
  const double idle = product_dtype(setup_) == DType::bf16 ? rates->bf16_flops_per_second : rates->f32_flops_per_second;
  const double after = products();
  if (!is_undisturbed(idle, before_, after))
    return fmt::format("the times of this run are not kept for later plans: products ran at {:.0f}% of their rate",
                       100 * std::min(before_, after) / idle);
  const PlannedPrograms& planned = setup_.planned;
  if (refine_ops(*planned.programs.front(), planned.plans, visit_events(recorder), static_cast<std::int32_t>(step),
                 *rates))
    return share_rates(cache_directory(), *rates, true).failure;
  return {};
}

}  // namespace spillway
