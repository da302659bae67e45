// How long a run still takes, from the steps and evaluations it has made.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace spillway {

// The median of the latest steps times the steps that remain, and the latest evaluation times those that remain. What a
// step spends on its commit is part of it. The first step is left out: it pays for warming up.
class TimeLeft {
 public:
  void after_step(double step_seconds);
  void after_evaluation(double seconds) { evaluation_seconds_ = seconds; }
  // Until one was seen, an evaluation is taken to last so many steps.
  void expect_evaluation(double steps) { evaluation_steps_ = steps; }

  // Nothing until enough steps are known to be believed.
  std::optional<double> seconds(std::int64_t steps_left, std::int64_t evaluations_left) const;
  // Of the latest steps; nothing until it can be believed.
  std::optional<double> median() const;

  static constexpr std::size_t believable_steps = 3;
  static constexpr std::size_t window_steps = 51;

 private:
  std::vector<double> latest_seconds_;  // a ring of window_steps
  std::size_t next_ = 0;
  bool first_ = true;
  std::optional<double> evaluation_seconds_;
  double evaluation_steps_ = 0;
};

}  // namespace spillway
