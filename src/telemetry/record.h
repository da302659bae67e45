// The closed, typed list of what a run reports.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace spillway {

// Known before the first step.
struct RunSummary {
  std::string model = {};
  std::string output_dir = {};
  std::string dtype = {};
  std::int64_t parameters = 0;
  std::int64_t total_steps = 0;
  std::int64_t tokens_per_step = 0;
  std::int64_t threads = 0;
  std::int64_t budget_bytes = 0;
  std::int64_t state_bytes = 0;    // weights, masters and moments
  std::int64_t spilled_bytes = 0;  // of the state, what lives on disk
  std::string spill_dir = {};      // empty when nothing spills
};

// One optimizer step, or the evaluation that followed it (eval_loss).
struct StepRecord {
  std::int64_t step = 0;  // from 1
  std::int64_t total_steps = 0;
  float loss = 0;       // mean over the step's target tokens
  float grad_norm = 0;  // before clipping
  double learning_rate = 0;
  std::int64_t tokens = 0;  // targets of this step
  double step_seconds = 0;
  double tokens_per_second = 0;
  double stall_seconds = 0;                 // of step_seconds, computing waited for the disk
  std::int64_t rss_bytes = 0;               // resident now
  std::int64_t disk_read_bytes = 0;         // by this step
  std::int64_t disk_write_bytes = 0;        // by this step
  std::optional<double> seconds_left = {};  // once believable
  std::optional<double> eval_loss = {};
};

struct RunEnd {
  std::string output_dir = {};
  std::int64_t steps = 0;
  double seconds = 0;
  std::int64_t peak_rss_bytes = 0;
};

}  // namespace spillway
