// What the records of a run add up to, and its curves, thinned to what a page can draw.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "telemetry/record.h"

namespace spillway {

constexpr std::size_t most_curve_points = 2000;
constexpr double slow_step_factor = 1.5;  // times the median of the steps around it

struct SlowStep {
  std::int64_t step = 0;
  double seconds = 0;
  double median_seconds = 0;
};

struct RunTotals {
  std::int64_t steps = 0;
  double seconds = 0;  // of all steps
  double median_step_seconds = 0;
  double median_tokens_per_second = 0;
  std::int64_t tokens = 0;
  double stall_seconds = 0;
  std::int64_t read_bytes = 0;
  std::int64_t write_bytes = 0;
  std::int64_t peak_rss_bytes = 0;
  std::int64_t clipped = 0;
  double first_loss = 0;
  double last_loss = 0;                            // mean of the last tenth, at most 50 steps
  std::optional<double> eval_loss = {};            // the latest
  std::optional<double> predicted_seconds = {};    // of a step, the latest
  std::optional<double> lower_bound_seconds = {};  // likewise
  // Of the records that have them, which `totals_steps` counts.
  std::int64_t totals_steps = 0;
  StepTotals totals = {};  // sums; memory_bytes: of the step in which most was in use
};

RunTotals totals_of(std::span<const StepRecord> steps);

// At least so many times the median of the 51 steps around it; the first step, which pays for warming up, is not.
std::vector<SlowStep> slow_steps(std::span<const StepRecord> steps);

// At most most_curve_points records: each is the mean of as many, but for its step and eval_loss, which are the last
// one's, and for committed_step. `every`: how many.
struct Thinned {
  std::int64_t every = 1;
  std::vector<StepRecord> steps;
};
Thinned thin(std::span<const StepRecord> steps);

}  // namespace spillway
