// What commits cost: the time between steps with a commit after every step against none, alternated; with the optimizer
// state on disk (the smallest budget) and with everything in memory; and with exports against none.
//   checkpoint_bench [preset=gpt2-124m] [micro_batches=4] [rounds=5] [steps=6] [flush_delay_ms=0] [export_steps=3]
//     [dir=bench-data]
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "base/bytes.h"
#include "training_runs.h"

namespace spillway::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;

// From the end of one step to that of the next, with whatever is saved between them.
struct Periods : TrainObserver {
  void note(std::string_view) override {}
  void started(const RunSummary&) override {}
  void step(const StepRecord& record) override {
    const auto now = SteadyClock::now();
    if (record.step > 2) seconds.push_back(std::chrono::duration<double>(now - last).count());
    last = now;
    bytes = static_cast<double>(record.disk_read_bytes + record.disk_write_bytes);
  }
  void finished(const RunEnd&) override {}
  std::vector<double> seconds;
  SteadyClock::time_point last;
  double bytes = 0;
};

double period(TrainOptions options, std::int64_t memory_bytes, std::int64_t save_steps, std::int64_t export_steps) {
  std::filesystem::remove_all(options.output_dir);
  options.memory_bytes = memory_bytes;
  options.save_steps = save_steps;
  options.export_steps = export_steps;
  Periods periods;
  run_train(options, periods);
  return median(periods.seconds);
}

void compare(const char* what, const TrainOptions& options, std::int64_t memory_bytes, const Settings& settings) {
  std::printf("%s, %s\n%-6s %12s %12s %8s %12s %8s\n", what, format_bytes(memory_bytes).c_str(), "round", "none s",
              "every step s", "ratio", "exporting s", "ratio");
  std::vector<double> ratios;
  std::vector<double> export_ratios;
  for (std::int64_t round = 0; round < settings.integer("rounds", 5); ++round) {
    const double none = period(options, memory_bytes, -1, 0);
    const double every = period(options, memory_bytes, 1, 0);
    const double exporting = period(options, memory_bytes, 1, settings.integer("export_steps", 3));
    ratios.push_back(every / none);
    export_ratios.push_back(exporting / every);
    std::printf("%-6ld %12.3f %12.3f %8.3f %12.3f %8.3f\n", static_cast<long>(round), none, every, ratios.back(),
                exporting, export_ratios.back());
    std::fflush(stdout);
  }
  std::printf("median: every step %.3f of none, exporting %.3f of that\n", median(ratios), median(export_ratios));
}

int bench(const Settings& settings) {
  TrainOptions options =
      random_training(settings, settings.text("dir", "bench-data"), settings.text("preset", "gpt2-124m"));
  options.max_steps = settings.integer("steps", 6);
  options.flush_delay_ms = settings.integer("flush_delay_ms", 0);
  options.export_steps = 1;  // the budgets have room for exports
  const PlanReport plan = run_plan(options);
  compare("all optimizer state on disk", options, plan.min_memory_bytes + 64 * mib, settings);
  compare("everything in memory", options, plan.in_memory_bytes + 64 * mib, settings);
  return 0;
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) { return spillway::bench::bench(spillway::bench::Settings(argc, argv)); }
