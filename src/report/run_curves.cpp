#include "report/run_curves.h"

#include <algorithm>
#include <cmath>

namespace spillway {
namespace {

constexpr std::size_t median_window = 51;
constexpr std::size_t most_last_steps = 50;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void add(StepTotals& sum, const StepTotals& of) {
  for (std::size_t i = 0; i < step_phase_count; ++i) sum.phase_seconds[i] += of.phase_seconds[i];
  for (std::size_t i = 0; i < wait_cause_count; ++i) sum.wait_seconds[i] += of.wait_seconds[i];
  for (std::size_t i = 0; i < memory_tag_count; ++i) sum.read_bytes[i] += of.read_bytes[i];
  for (std::size_t i = 0; i < memory_tag_count; ++i) sum.write_bytes[i] += of.write_bytes[i];
}

std::int64_t used(const StepTotals& totals) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(MemoryTag::unused); ++i) bytes += totals.memory_bytes[i];
  return bytes;
}

void divide(StepTotals& totals, double by) {
  for (double& value : totals.phase_seconds) value /= by;
  for (double& value : totals.wait_seconds) value /= by;
  for (auto* list : {&totals.read_bytes, &totals.write_bytes}) {
    for (std::int64_t& value : *list) value = static_cast<std::int64_t>(static_cast<double>(value) / by);
  }
}

StepRecord mean_of(std::span<const StepRecord> steps) {
  StepRecord mean = steps.back();
  const auto count = static_cast<double>(steps.size());
  const auto average = [&](auto&& value) {
    double sum = 0;
    for (const StepRecord& record : steps) sum += static_cast<double>(value(record));
    return sum / count;
  };
  mean.loss = static_cast<float>(average([](const auto& r) { return r.loss; }));
  mean.grad_norm = static_cast<float>(average([](const auto& r) { return r.grad_norm; }));
  mean.learning_rate = average([](const auto& r) { return r.learning_rate; });
  mean.step_seconds = average([](const auto& r) { return r.step_seconds; });
  mean.stall_seconds = average([](const auto& r) { return r.stall_seconds; });
  const double tokens = average([](const auto& r) { return r.tokens; });
  mean.tokens_per_second = mean.step_seconds > 0 ? tokens / mean.step_seconds : 0;
  if (steps.front().link) {
    mean.link = LinkTraffic{
        static_cast<std::int64_t>(average([](const auto& r) { return r.link.value_or(LinkTraffic{}).up_bytes; })),
        static_cast<std::int64_t>(average([](const auto& r) { return r.link.value_or(LinkTraffic{}).down_bytes; }))};
  }
  mean.disk_read_bytes = static_cast<std::int64_t>(average([](const auto& r) { return r.disk_read_bytes; }));
  mean.disk_write_bytes = static_cast<std::int64_t>(average([](const auto& r) { return r.disk_write_bytes; }));
  StepTotals sum;
  double with_totals = 0;
  for (const StepRecord& record : steps) {
    if (record.eval_loss) mean.eval_loss = record.eval_loss;
    if (!record.totals) continue;
    add(sum, *record.totals);
    sum.memory_bytes = record.totals->memory_bytes;
    ++with_totals;
  }
  if (with_totals > 0) divide(sum, with_totals);
  mean.totals = with_totals > 0 ? std::optional(sum) : std::nullopt;
  return mean;
}

}  // namespace

RunTotals totals_of(std::span<const StepRecord> steps) {
  RunTotals totals;
  totals.steps = std::ssize(steps);
  if (steps.empty()) return totals;
  std::vector<double> seconds;
  std::vector<double> rates;
  for (const StepRecord& record : steps) {
    seconds.push_back(record.step_seconds);
    rates.push_back(record.tokens_per_second);
    totals.seconds += record.step_seconds;
    totals.tokens += record.tokens;
    totals.stall_seconds += record.stall_seconds;
    totals.read_bytes += record.disk_read_bytes;
    totals.write_bytes += record.disk_write_bytes;
    totals.peak_rss_bytes = std::max(totals.peak_rss_bytes, record.rss_bytes);
    totals.clipped += record.clipped ? 1 : 0;
    if (record.eval_loss) totals.eval_loss = record.eval_loss;
    if (record.predicted_seconds) totals.predicted_seconds = record.predicted_seconds;
    if (record.lower_bound_seconds) totals.lower_bound_seconds = record.lower_bound_seconds;
    if (!record.totals) continue;
    ++totals.totals_steps;
    add(totals.totals, *record.totals);
    if (used(*record.totals) >= used(totals.totals)) totals.totals.memory_bytes = record.totals->memory_bytes;
  }
  totals.median_step_seconds = median(std::move(seconds));
  totals.median_tokens_per_second = median(std::move(rates));
  totals.first_loss = static_cast<double>(steps.front().loss);
  const std::size_t last = std::clamp<std::size_t>(steps.size() / 10, 1, most_last_steps);
  for (const StepRecord& record : steps.last(last)) totals.last_loss += static_cast<double>(record.loss);
  totals.last_loss /= static_cast<double>(last);
  return totals;
}

std::vector<SlowStep> slow_steps(std::span<const StepRecord> steps) {
  std::vector<SlowStep> slow;
  for (std::size_t i = 1; i < steps.size(); ++i) {
    const std::size_t window = std::min(median_window, steps.size());
    const std::size_t from = std::min(i - std::min(i, window / 2), steps.size() - window);
    std::vector<double> around;
    for (const StepRecord& record : steps.subspan(from, window)) around.push_back(record.step_seconds);
    const double usual = median(std::move(around));
    if (steps[i].step_seconds > slow_step_factor * usual) slow.push_back({steps[i].step, steps[i].step_seconds, usual});
  }
  return slow;
}

Thinned thin(std::span<const StepRecord> steps) {
  const std::size_t every = std::max<std::size_t>(1, (steps.size() + most_curve_points - 1) / most_curve_points);
  Thinned thinned;
  thinned.every = static_cast<std::int64_t>(every);
  for (std::size_t from = 0; from < steps.size(); from += every) {
    thinned.steps.push_back(mean_of(steps.subspan(from, std::min(every, steps.size() - from))));
  }
  return thinned;
}

}  // namespace spillway
