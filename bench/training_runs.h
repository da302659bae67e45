// Short training runs from random weights on random tokens: what the training benchmarks share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "session/session.h"

namespace spillway::bench {

double median(std::vector<double> values);  // NaN of none, as where nothing was run

// The items of "0.25,0.12".
std::vector<std::string> items(const std::string& list, char separator = ',');

// Takes what is told, as the terminal does, and shows nothing.
struct Quiet : TrainObserver {
  void note(std::string_view) override {}
  void started(const RunSummary&) override {}
  void step(const StepRecord& record) override { steps.push_back(record); }
  void finished(const RunEnd& run_end) override { end = run_end; }
  std::vector<StepRecord> steps;
  RunEnd end;
};

// Arguments of the form key=value.
class Settings {
 public:
  Settings(int argc, char** argv);
  std::string text(const std::string& key, const std::string& otherwise) const;
  std::int64_t integer(const std::string& key, std::int64_t otherwise) const;
  double real(const std::string& key, double otherwise) const;

 private:
  std::map<std::string, std::string> given_;
};

// What a bench's main does: an error is one sentence, and 1.
int run_bench(int argc, char** argv, int (*bench)(const Settings&));

// The sizes of a preset, llama-30m or llama-0.3b.
ModelConfig config_named(const std::string& model);

// Options of runs of `model`, a preset, llama-30m or llama-0.3b, whose folder and tokens are made in `dir` if need be.
// One sequence a micro-batch; settings tokens, micro_batches, steps, clip and dtype.
TrainOptions random_training(const Settings& settings, const std::filesystem::path& dir, const std::string& model);

struct StepRates {
  double tokens_per_second = 0;  // median over steps, the first, which warms up, left out
  double disk_bytes = 0;         // a step, both ways
  double step_seconds = 0;       // median
  double update_seconds = 0;     // median of what is neither forward nor backward
};

// Memory of a virtual device in which a whole step of these options lies, which without one takes `in_memory_bytes`.
std::int64_t whole_device_bytes(TrainOptions options, std::int64_t in_memory_bytes);

StepRates run_steps(TrainOptions options, std::int64_t memory_bytes);

}  // namespace spillway::bench
