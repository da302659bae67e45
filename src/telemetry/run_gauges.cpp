#include "telemetry/run_gauges.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace spillway {

// --- As an observer ---

void RunGauges::started(const RunSummary& run) {
  run_ = run;
  total_steps_ = static_cast<double>(run.total_steps);
  progressed();
  phase_ = RunPhase::train;
  started_.store(true, std::memory_order_release);
}

void RunGauges::step(const StepRecord& r) {
  times_.after_step(r.step_seconds);
  median_seconds_ = times_.median().value_or(unknown);
  step_ = static_cast<double>(r.step);
  add(steps_, 1);
  add(tokens_, static_cast<double>(r.tokens));
  loss_ = static_cast<double>(r.loss);
  grad_norm_ = static_cast<double>(r.grad_norm);
  learning_rate_ = r.learning_rate;
  if (r.eval_loss) eval_loss_ = *r.eval_loss;
  step_seconds_ = r.step_seconds;
  tokens_per_second_ = r.tokens_per_second;
  predicted_seconds_ = r.predicted_seconds.value_or(unknown);
  lower_bound_seconds_ = r.lower_bound_seconds.value_or(unknown);
  seconds_left_ = r.seconds_left.value_or(unknown);
  rss_bytes_ = static_cast<double>(r.rss_bytes);
  add(stall_seconds_, r.stall_seconds);
  if (r.link) add(up_bytes_, static_cast<double>(r.link->up_bytes));
  if (r.link) add(down_bytes_, static_cast<double>(r.link->down_bytes));
  if (r.committed_step && committed_ns_ == 0) committed_step_ = static_cast<double>(*r.committed_step);
  if (r.totals) {
    for (std::size_t i = 0; i < memory_tag_count; ++i) {
      add(read_bytes_[i], static_cast<double>(r.totals->read_bytes[i]));
      add(write_bytes_[i], static_cast<double>(r.totals->write_bytes[i]));
    }
    for (std::size_t i = 0; i < step_phase_count; ++i) add(phase_seconds_[i], r.totals->phase_seconds[i]);
    for (std::size_t i = 0; i < wait_cause_count; ++i) add(wait_seconds_[i], r.totals->wait_seconds[i]);
  } else {
    add(read_bytes_.back(), static_cast<double>(r.disk_read_bytes));
    add(write_bytes_.back(), static_cast<double>(r.disk_write_bytes));
  }
  progressed();
}

void RunGauges::finished(const RunEnd&) { finished_ = true; }

void RunGauges::live(const LiveStatus& status) {
  const RunPhase before = phase_.exchange(status.phase);
  const bool ops_end = status.phase == RunPhase::evaluate && status.share_of_step != share_of_step_;
  if (before != status.phase || ops_end) progressed();
  share_of_step_ = status.share_of_step;
  for (std::size_t i = 0; i < memory_tag_count; ++i) memory_bytes_[i] = static_cast<double>(status.memory_bytes[i]);
  for (std::size_t i = 0; i < memory_tag_count; ++i)
    device_memory_bytes_[i] = static_cast<double>(status.device_memory_bytes[i]);
  rss_bytes_ = static_cast<double>(status.rss_bytes);
  expected_seconds_ = status.expected_step_seconds.value_or(unknown);
  if (status.committed_step) {
    committed_step_ = static_cast<double>(*status.committed_step);
    committed_ns_ = clock_() - static_cast<std::int64_t>(status.seconds_since_commit * 1e9);
  }
  lives_ = true;
}

// --- Health ---

RunGauges::Health RunGauges::health() const {
  if (finished_) return {true, "the run is over"};
  const RunPhase phase = phase_;
  if (!started_ || phase == RunPhase::load) return {true, "loading"};
  if (phase == RunPhase::save) return {true, "saving"};
  const double median = median_seconds_;
  const double expected = std::isnan(median) ? expected_seconds_.load() : median;
  if (std::isnan(expected)) return {true, "too few steps have ended to know how long one takes"};
  const double age = seconds_since(progress_ns_);
  const double most = std::max(unwell_factor * expected, expected + unwell_least_seconds);
  const char* const what = phase == RunPhase::evaluate ? "op of the evaluation" : "step";
  if (age <= most) return {true, fmt::format("the last {} ended {:.1f} s ago", what, age)};
  return {false, fmt::format("no {} has ended for {:.1f} s; a step takes {:.1f} s, and {:.1f} s are allowed", what, age,
                             expected, most)};
}

}  // namespace spillway
