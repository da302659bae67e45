#include "telemetry/time_left.h"

#include <algorithm>

namespace spillway {

std::optional<double> TimeLeft::after_step(double step_seconds, std::int64_t steps_left) {
  if (first_) {
    first_ = false;
    return std::nullopt;
  }
  if (latest_seconds_.size() < window_steps) {
    latest_seconds_.push_back(step_seconds);
  } else {
    latest_seconds_[next_] = step_seconds;
    next_ = (next_ + 1) % window_steps;
  }
  if (latest_seconds_.size() < believable_steps) return std::nullopt;
  std::vector<double> sorted = latest_seconds_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle * static_cast<double>(steps_left);
}

}  // namespace spillway
