// What commits cost: the time between steps with a commit after every step against none, alternated; with the optimizer
// state on disk (the smallest budget) and with everything in memory; and with exports against none (export_steps=0
// leaves them out). Beside the times: seconds of a step in which nothing was computed, without and with commits; bytes
// over the disk and processor time, as ratios.
//   checkpoint_bench [preset=gpt2-124m] [micro_batches=4] [rounds=5] [steps=6] [flush_delay_ms=0] [export_steps=3]
//     [where=disk|memory] [dir=bench-data]
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <numeric>

#include "base/bytes.h"
#include "training_runs.h"

namespace spillway::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;

// From the end of one step to that of the next, with whatever is saved between them.
struct Periods : Quiet {
  void step(const StepRecord& record) override {
    const auto now = SteadyClock::now();
    const double period = std::chrono::duration<double>(now - last).count();
    last = now;
    if (record.step <= 2) return;
    seconds.push_back(period);
    stopped.push_back(period - record.step_seconds + record.stall_seconds);
    bytes.push_back(static_cast<double>(record.disk_read_bytes + record.disk_write_bytes));
  }
  std::vector<double> seconds;
  std::vector<double> stopped;  // computing waited for the disk, or the host did what is done between steps
  std::vector<double> bytes;
  SteadyClock::time_point last;
};

double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

struct Cost {
  double seconds = 0;            // a step, the median
  double stopped_seconds = 0;    // of these, nothing was computed; the mean, since few steps may have most of it
  double bytes = 0;              // a step over the disk, both ways, the median
  double processor_seconds = 0;  // of the whole run, on all threads
};

Cost cost(TrainOptions options, std::int64_t memory_bytes, std::int64_t save_steps, std::int64_t export_steps) {
  std::filesystem::remove_all(options.output_dir);
  options.memory_bytes = memory_bytes;
  options.save_steps = save_steps;
  options.export_steps = export_steps;
  Periods periods;
  const double before = processor_seconds();
  run_train(options, periods);
  const double stopped = std::accumulate(periods.stopped.begin(), periods.stopped.end(), 0.0);
  return {median(periods.seconds), stopped / static_cast<double>(periods.stopped.size()), median(periods.bytes),
          processor_seconds() - before};
}

void compare(const char* what, const TrainOptions& options, std::int64_t memory_bytes, const Settings& settings) {
  std::printf("%s, %s\n%-6s %10s %14s %8s %10s %10s %8s %8s %12s %8s\n", what, format_bytes(memory_bytes).c_str(),
              "round", "none s", "every step s", "ratio", "stopped s", "stopped s", "bytes", "CPU", "exporting s",
              "ratio");
  std::vector<double> ratios;
  std::vector<double> export_ratios;
  for (std::int64_t round = 0; round < settings.integer("rounds", 5); ++round) {
    const Cost none = cost(options, memory_bytes, -1, 0);
    const Cost every = cost(options, memory_bytes, 1, 0);
    ratios.push_back(every.seconds / none.seconds);
    std::printf("%-6ld %10.3f %14.3f %8.3f %10.4f %10.4f %8.3f %8.3f", static_cast<long>(round), none.seconds,
                every.seconds, ratios.back(), none.stopped_seconds, every.stopped_seconds,
                none.bytes > 0 ? every.bytes / none.bytes : 0, every.processor_seconds / none.processor_seconds);
    if (const std::int64_t export_steps = settings.integer("export_steps", 3); export_steps > 0) {
      const Cost exporting = cost(options, memory_bytes, 1, export_steps);
      export_ratios.push_back(exporting.seconds / every.seconds);
      std::printf(" %12.3f %8.3f", exporting.seconds, export_ratios.back());
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  std::printf("median: every step %.3f of none", median(ratios));
  if (!export_ratios.empty()) std::printf(", exporting %.3f of that", median(export_ratios));
  std::printf("\n");
}

int bench(const Settings& settings) {
  TrainOptions options =
      random_training(settings, settings.text("dir", "bench-data"), settings.text("preset", "gpt2-124m"));
  options.max_steps = settings.integer("steps", 6);
  options.flush_delay_ms = settings.integer("flush_delay_ms", 0);
  options.export_steps = 1;  // the budgets have room for exports
  const PlanReport plan = run_plan(options);
  const std::string where = settings.text("where", "");
  if (where != "memory") compare("all optimizer state on disk", options, plan.min_memory_bytes + 64 * mib, settings);
  if (where != "disk") compare("everything in memory", options, plan.in_memory_bytes + 64 * mib, settings);
  return 0;
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) { return spillway::bench::run_bench(argc, argv, spillway::bench::bench); }
