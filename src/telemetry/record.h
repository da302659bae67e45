// The closed, typed list of what a run reports.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "telemetry/events.h"

namespace spillway {

// Where the time of a step goes. The time of a phase is from the first of its ops, or the wait for it, to the end of
// the last, waits included; `other` is what the host does before and after. They add up to step_seconds.
enum class StepPhase : std::uint8_t { forward, head, recompute, backward, update, other };
constexpr std::size_t step_phase_count = 6;
std::string_view name_of(StepPhase phase);

// What computing waited for: the read or the write (for its pages, or for a slot) of a kind of bundle; with a device,
// also its copy up or down, or updates on the host. Of each link by MemoryTag. They add up to stall_seconds.
enum class WaitCause : std::uint8_t {
  read_weights,
  read_optimizer,
  read_gradients,
  read_activations,
  write_weights,
  write_optimizer,
  write_gradients,
  write_activations,
  up_weights,
  up_optimizer,
  up_gradients,
  up_activations,
  down_weights,
  down_optimizer,
  down_gradients,
  down_activations,
  update,
};
constexpr std::size_t wait_cause_count = 17;
constexpr std::size_t disk_wait_cause_count = 8;  // the first: there are no others without a device
std::string_view name_of(WaitCause cause);

// What a step's events add up to; see telemetry/step_totals.h.
struct StepTotals {
  std::array<double, step_phase_count> phase_seconds{};
  std::array<double, wait_cause_count> wait_seconds{};
  // Moves that ended in this step, by MemoryTag of the bundle. Never of `unused`.
  std::array<std::int64_t, memory_tag_count> read_bytes{};
  std::array<std::int64_t, memory_tag_count> write_bytes{};
  // The pages by what is on them, at the moment of the step at which the most were in use. They add up to the arena.
  std::array<std::int64_t, memory_tag_count> memory_bytes{};
  // The same of a device's pages, at a moment of their own. All 0 without one.
  std::array<std::int64_t, memory_tag_count> device_memory_bytes{};
};

// What a step copied over the link to a device.
struct LinkTraffic {
  std::int64_t up_bytes = 0;
  std::int64_t down_bytes = 0;
};

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
  std::string spill_dirs = {};     // "a, b"; empty when nothing spills
  std::int64_t device_bytes = 0;   // pages of a device; 0: there is none
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
  double stall_seconds = 0;                 // of step_seconds, computing waited for disk or link
  std::int64_t rss_bytes = 0;               // resident now, without a virtual device's pages
  std::int64_t disk_read_bytes = 0;         // by this step
  std::int64_t disk_write_bytes = 0;        // by this step
  std::optional<LinkTraffic> link = {};     // by this step, with a device
  std::int64_t host_updates = 0;            // ops, beside a device
  std::int64_t device_updates = 0;          // ops of its own; 0: there is no device
  std::optional<double> seconds_left = {};  // once believable
  std::optional<double> eval_loss = {};
  std::optional<StepTotals> totals = {};           // when events are recorded
  std::optional<double> predicted_seconds = {};    // of the step's plan, by the simulator, where rates are known
  std::optional<double> lower_bound_seconds = {};  // no step that moves these bytes is faster
  // The way the step clipped: "after", "deferred", "speculative", or "reverted": speculated, taken back and updated
  // again. Empty: it does not clip.
  std::string clip = {};
  bool clipped = false;                             // the norm was over the limit
  std::optional<std::int64_t> committed_step = {};  // the newest durable one when the step ended
};

struct RunEnd {
  std::string output_dir = {};  // that holds the model; empty when the run was stopped before its last step
  std::int64_t steps = 0;
  double seconds = 0;
  std::int64_t peak_rss_bytes = 0;  // without a virtual device's pages
};

}  // namespace spillway
