// How long a run still takes, from the steps it has made.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace spillway {

// The median of the latest steps times the steps that remain. The first step is left out: it pays for warming up.
class TimeLeft {
 public:
  // Returns nothing until enough steps are known to be believed.
  std::optional<double> after_step(double step_seconds, std::int64_t steps_left);

  static constexpr std::size_t believable_steps = 3;
  static constexpr std::size_t window_steps = 51;

 private:
  std::vector<double> latest_seconds_;  // a ring of window_steps
  std::size_t next_ = 0;
  bool first_ = true;
};

}  // namespace spillway
