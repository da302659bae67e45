// What each policy reaches at several shares of the memory that a run needs to move nothing: tokens/s, predicted and
// measured (nan with rounds=0), and bytes. "plain" is our policy by layer with nothing recomputed, to tell what
// choosing adds; the others are worked through like it. Each round goes through all of them.
//   ablation_bench [policies=auto,plain,everything-on-disk,lru,lifetime,belady] [shares=0.12,0.25,0.5]
//     [preset=gpt2-124m] [micro_batches=4] [tokens=1024] [rounds=5] [steps=3] [clip=0] [dtype=auto] [dir=bench-data]
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "training_runs.h"

namespace spillway::bench {
namespace {

struct Cell {
  std::string policy;
  std::string share;
  TrainOptions options;
  PlanReport plan;
  std::vector<double> rates;
};

std::vector<Cell> cells_of(const Settings& settings, const TrainOptions& options, std::int64_t in_memory_bytes) {
  std::vector<Cell> cells;
  for (const std::string& share : items(settings.text("shares", "0.12,0.25,0.5"))) {
    for (const std::string& policy :
         items(settings.text("policies", "auto,plain,everything-on-disk,lru,lifetime,belady"))) {
      Cell cell{policy, share, options, {}, {}};
      cell.options.memory_bytes = static_cast<std::int64_t>(std::stod(share) * static_cast<double>(in_memory_bytes));
      if (policy != "auto") {
        cell.options.policy = policy == "plain" ? "farthest" : policy;
        cell.options.order = "layer";
        cell.options.recompute = "none";
      }
      cell.plan = run_plan(cell.options, true);
      cells.push_back(std::move(cell));
    }
  }
  return cells;
}

void print(const Cell& cell) {
  std::printf("%-6s %-20s ", cell.share.c_str(), cell.policy.c_str());
  if (!cell.plan.fits) {
    std::printf("does not fit\n");
    return;
  }
  const double step_seconds = cell.plan.prediction ? cell.plan.prediction->step_seconds : 0;
  std::printf("%12.1f %12.1f %12.3g %12.3g %12.3g  %s\n", median(cell.rates),
              step_seconds > 0 ? static_cast<double>(cell.plan.tokens_per_step) / step_seconds : 0,
              static_cast<double>(cell.plan.disk_read_bytes_per_step),
              static_cast<double>(cell.plan.disk_write_bytes_per_step),
              static_cast<double>(cell.plan.disk_state_write_bytes_per_step), cell.plan.work.c_str());
}

int bench(const Settings& settings) {
  const std::string preset = settings.text("preset", "gpt2-124m");
  const TrainOptions options = random_training(settings, settings.text("dir", "bench-data"), preset);
  const PlanReport whole = run_plan(options);
  std::printf("%s, %ld tokens a step, %s; in memory from %s\n", preset.c_str(),
              static_cast<long>(whole.tokens_per_step), whole.dtype.c_str(),
              format_bytes(whole.in_memory_bytes).c_str());
  std::vector<Cell> cells = cells_of(settings, options, whole.in_memory_bytes);
  for (std::int64_t round = 0; round < settings.integer("rounds", 5); ++round) {
    for (Cell& cell : cells) {
      if (cell.plan.fits) cell.rates.push_back(run_steps(cell.options, cell.options.memory_bytes).tokens_per_second);
    }
  }
  std::printf("%-6s %-20s %12s %12s %12s %12s %12s  %s\n", "share", "policy", "tokens/s", "predicted", "read B",
              "written B", "of it state", "work");
  for (const Cell& cell : cells) print(cell);
  return 0;
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) { return spillway::bench::run_bench(argc, argv, spillway::bench::bench); }
