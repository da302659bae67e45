#include "telemetry/time_left.h"

#include <algorithm>

namespace spillway {

void TimeLeft::after_step(double step_seconds) {
  if (first_) {
    first_ = false;
  } else if (latest_seconds_.size() < window_steps) {
    latest_seconds_.push_back(step_seconds);
  } else {
    latest_seconds_[next_] = step_seconds;
    next_ = (next_ + 1) % window_steps;
  }
}

std::optional<double> TimeLeft::median() const {
  if (latest_seconds_.size() < believable_steps) return std::nullopt;
  std::vector<double> sorted = latest_seconds_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

std::optional<double> TimeLeft::seconds(std::int64_t steps_left, std::int64_t evaluations_left) const {
  const std::optional<double> step = median();
  if (!step) return std::nullopt;
  return *step * static_cast<double>(steps_left) +
         evaluation_seconds_.value_or(*step * evaluation_steps_) * static_cast<double>(evaluations_left);
}

}  // namespace spillway
