// A run between two step lines: what the terminal shows and the endpoint serves while a step goes on.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "telemetry/events.h"

namespace spillway {

struct LiveStatus {
  std::int64_t step = 0;  // under way, from 1; 0 before the first
  std::int64_t total_steps = 0;
  RunPhase phase = RunPhase::load;
  std::string part = {};                             // of the step: "backward layer 3 mlp"
  double share_of_step = 0;                          // of its ops, 0 to 1
  double step_seconds = 0;                           // since it began
  std::optional<double> expected_step_seconds = {};  // the median of the latest, or as predicted
  std::optional<double> seconds_left = {};           // of the run, evaluations and commits counted; once believable
  std::array<std::int64_t, memory_tag_count> memory_bytes{};  // of the pages, by MemoryTag; they add up to the arena
  std::array<std::int64_t, memory_tag_count> device_memory_bytes{};  // the same of a device's pages; 0 without one
  std::int64_t rss_bytes = 0;                                        // without a virtual device's pages
  double read_bytes_per_second = 0;                                  // over the last second or so
  double write_bytes_per_second = 0;
  double up_bytes_per_second = 0;  // over the link to a device
  double down_bytes_per_second = 0;
  std::string waits_for = {};     // now: "the read of model.layers.3.mlp.up_proj.weight (6.00 MiB)"; empty: it computes
  double waited_seconds = 0;      // so far, for that
  std::string largest_wait = {};  // cause with the most seconds in the latest step: "read optimizer"
  double largest_wait_seconds = 0;
  std::optional<std::int64_t> committed_step = {};
  double seconds_since_commit = 0;
};

}  // namespace spillway
