// Learning-rate schedules: the formulas of get_scheduler in Hugging Face's transformers/optimization.py.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "session/options.h"

namespace spillway {
namespace {

// a / max(1, b), as a real.
double ratio(std::int64_t a, std::int64_t b) {
  return static_cast<double>(a) / static_cast<double>(std::max<std::int64_t>(1, b));
}

double half_cosine(double progress) { return std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * progress))); }

double stable_decay_factor(const TrainOptions& options, std::int64_t step, std::int64_t total_steps) {
  const std::int64_t after_warmup = std::max<std::int64_t>(0, total_steps - options.warmup_steps);
  const std::int64_t wanted = options.decay_steps >= 0 ? options.decay_steps : (total_steps + 9) / 10;
  const std::int64_t decay_steps = std::min(wanted, after_warmup);
  const std::int64_t decay_begin = options.warmup_steps + after_warmup - decay_steps;
  if (step < decay_begin) return 1.0;
  return step < total_steps ? half_cosine(ratio(step - decay_begin, decay_steps)) : 0.0;
}

double factor(const TrainOptions& options, std::int64_t step, std::int64_t total_steps) {
  const std::int64_t warmup = options.warmup_steps;
  if (step < warmup) return ratio(step, warmup);
  const std::string& type = options.lr_scheduler_type;
  if (type == "constant") return 1.0;
  if (type == "linear") return std::max(0.0, ratio(total_steps - step, total_steps - warmup));
  if (type == "cosine") return half_cosine(ratio(step - warmup, total_steps - warmup));
  SPILLWAY_CHECK(type == "warmup_stable_decay", "lr_scheduler_type {}", type);
  return stable_decay_factor(options, step, total_steps);
}

}  // namespace

double learning_rate_at(const TrainOptions& options, std::int64_t step, std::int64_t total_steps) {
  return options.learning_rate * factor(options, step, total_steps);
}

}  // namespace spillway
