// The verbs, as functions: each builds, plans, verifies, runs and reports. The command line and a program that uses
// the library call the same ones. All throw UserError, DoesNotFit or DeviceError, and leave existing output as it was.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "machine/rates.h"
#include "session/options.h"
#include "session/run_control.h"
#include "telemetry/observer.h"

namespace spillway {

// Of the shared library: "0.1.0".
std::string_view library_version();

// Trains and writes the model folder, or goes on with a run that was stopped (resume_from_checkpoint). Writes
// output_dir/metrics.jsonl itself. Where output_dir holds what this very run has made, a note says so and nothing is
// done. `control`, where given, may be told to stop at any time.
void run_train(const TrainOptions& options, TrainObserver& observer, RunControl* control = nullptr);

// A share of what the run needs and where it lies at the start of a step.
struct PlacementRow {
  std::string what = {};  // "weights", "optimizer", "activations", …
  std::int64_t bytes = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t disk_bytes = 0;
};

// A step's traffic with the disk.
struct LinkRow {
  std::string what = {};  // "state", "activations and gradients"
  std::int64_t read_bytes = 0;
  std::int64_t write_bytes = 0;
};

// What memory holds when most of it is in use.
struct MemoryRow {
  std::string what = {};  // "weights", "activations", …, "unused"
  std::int64_t bytes = 0;
  std::int64_t waste_bytes = 0;  // of these: ends of pages with nothing on them
};

// What goes to each of several spill directories in a step.
struct DiskRow {
  std::string directory = {};
  std::int64_t read_bytes = 0;
  std::int64_t write_bytes = 0;
};

struct PhaseRow {
  std::string phase = {};  // "forward", "head", "recompute", "backward", "update"
  double compute_seconds = 0;
  double wait_seconds = 0;
};

// What one change would give, in tokens a second against those of the plan.
struct Lever {
  std::string what = {};      // "a second disk"
  std::string resource = {};  // of which there is more then, as in StepPrediction::bottleneck; empty: of none
  double speedup = 1;
};

// A step in virtual time, in the midst of many, from the rates of a machine.
struct StepPrediction {
  double step_seconds = 0;
  double lower_bound_seconds = 0;  // the largest of the next four, without what is made again
  double compute_seconds = 0;
  double disk_seconds = 0;
  double link_seconds = 0;             // to or from a device
  double update_seconds = 0;           // on the host beside a device
  double recompute_seconds = 0;        // of compute_seconds, what is made again
  double stall_seconds = 0;            // computing waits for the disk, the link or updates on the host
  double slowed_seconds = 0;           // what the busy disk and updates on the host add to the ops
  double commit_bytes_per_second = 0;  // that commits write to disk beyond what the step writes, exports left out
  // Of which twice as much gives most: "compute", "disk", "memory", "link", "device memory" or "update".
  std::string bottleneck = {};
  std::vector<PhaseRow> phases = {};
  std::vector<Lever> levers = {};
};

struct PlanReport {
  bool fits = false;
  std::int64_t budget_bytes = 0;
  std::int64_t min_memory_bytes = 0;
  std::int64_t in_memory_bytes = 0;  // the smallest budget at which nothing moves and nothing is recomputed
  std::int64_t peak_memory_bytes = 0;
  std::int64_t device_memory_bytes = 0;  // of the device; 0: there is none, and the next eleven are 0 too
  std::int64_t min_device_memory_bytes = 0;
  std::int64_t peak_device_memory_bytes = 0;
  std::int64_t link_up_bytes_per_step = 0;
  std::int64_t link_down_bytes_per_step = 0;
  bool device_direct = false;                   // moves go by its own path to the disk
  std::int64_t direct_read_bytes_per_step = 0;  // of those of the disk, which go that way
  std::int64_t direct_write_bytes_per_step = 0;
  std::int64_t updates_on_host = 0;  // ops of a step, beside a device
  std::int64_t updates_on_device = 0;
  std::int64_t parameters_on_host = 0;  // that these update
  std::int64_t parameters_on_device = 0;
  std::int64_t disk_read_bytes_per_step = 0;
  std::int64_t disk_write_bytes_per_step = 0;
  std::int64_t disk_state_write_bytes_per_step = 0;  // of these; the rest are activations and gradients
  std::string work = {};  // how a step is worked through: "by layer, recompute cheap in 6 layers"
  // The way of clipping chosen: "after", "deferred" or "speculative", where the prediction is of a step that is under
  // the limit; empty: steps do not clip.
  std::string clip = {};
  std::int64_t parameters = 0;
  std::int64_t tokens_per_step = 0;
  std::int64_t total_steps = 0;        // of the whole run; 0: not known, or none
  bool total_steps_estimated = false;  // from a sample of the data
  std::string dtype = {};
  std::vector<PlacementRow> placement = {};
  std::vector<LinkRow> links = {};
  std::vector<DiskRow> disks = {};  // by their rates; empty where there is one directory, or no prediction
  std::vector<MemoryRow> memory = {};
  std::optional<StepPrediction> prediction = {};
  std::vector<std::string> notes = {};
  std::string advice = {};  // when it does not fit: one sentence with the smallest budget and what to change
};

// Does not throw DoesNotFit: `fits` says it. `predict` simulates the step, on the machine of the options or on this
// one, of which it measures what the cache does not know; with options.trace it writes what it simulated there.
PlanReport run_plan(const TrainOptions& options, bool predict = false);

struct ProbeReport {
  MachineRates rates;   // what is known of this machine now
  std::string json;     // the same as a machine file
  std::string cache;    // where `plan` and `train` find it
  std::string failure;  // why they do not: it could not be written there
  std::vector<std::string> notes = {};
};

// Measures this machine for about half a minute, with a model also its ops at their shapes in a training step, and
// keeps the rates in the user's cache directory. The spill directories of the options, or the current one, are
// measured.
ProbeReport run_probe(const TrainOptions& options);

struct EvalReport {
  double loss = 0;  // mean over the target tokens, natural logarithm
  double perplexity = 0;
  std::int64_t tokens = 0;
  double seconds = 0;
  std::vector<std::string> notes = {};
};
EvalReport run_eval(const EvalOptions& options);

// Takes text in whole UTF-8 characters, as it comes.
using TextSink = std::function<void(std::string_view text)>;

struct GenerateReport {
  std::int64_t prompt_tokens = 0;
  std::int64_t new_tokens = 0;
  double seconds = 0;
  std::vector<std::string> notes = {};
};
GenerateReport run_generate(const GenerateOptions& options, const TextSink& sink);

struct InitReport {
  std::int64_t parameters = 0;
  std::int64_t bytes = 0;
};
InitReport run_init(const InitOptions& options);

struct TokenizeReport {
  std::vector<std::string> notes = {};
};
// Writes ids separated by spaces, one line a document, or with decode the text; with json an array of ids.
TokenizeReport run_tokenize(const TokenizeOptions& options, const TextSink& out);

void run_inspect(const InspectOptions& options, const TextSink& out);

}  // namespace spillway
