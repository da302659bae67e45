// What it costs to record events: runs with everything on (events, flight record, live numbers, trace, event
// files, endpoint) and with everything off, alternated; and the cost of one event, times the events of a step.
//   telemetry_bench [preset=gpt2-124m] [micro_batches=4] [memory=SHARE of in-memory, 0.25] [rounds=5] [steps=4]
//                   [clip=1] [dir=bench-data]
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "telemetry/flight_record.h"
#include "training_runs.h"

namespace spillway::bench {
namespace {

double event_seconds() {
  constexpr int events = 2'000'000;
  EventRecorder recorder(ring_capacities_for(1000, 2));
  const std::int64_t begin = monotonic_ns();
  for (int i = 0; i < events; ++i) recorder.op_begin({1, 0, 1}, i, i);
  return static_cast<double>(monotonic_ns() - begin) * 1e-9 / events;
}

std::vector<double> step_seconds(TrainOptions options, bool on) {
  std::filesystem::remove_all(options.output_dir);
  options.telemetry = on;
  options.report_to = on ? "tensorboard" : "none";
  if (on) options.metrics_address = "127.0.0.1:0";
  if (on) options.trace = options.output_dir + ".trace.json";
  Quiet run;
  run_train(options, run);
  std::vector<double> seconds;
  for (std::size_t s = 1; s < run.steps.size(); ++s) seconds.push_back(run.steps[s].step_seconds);
  return seconds;
}

std::int64_t events_a_step(const std::filesystem::path& run) {
  const FlightRecord record = read_flight(run);
  const auto last = static_cast<std::int32_t>(record.steps_done);
  return std::count_if(record.events.begin(), record.events.end(),
                       [&](const Event& event) { return event.step == last && event.run != 0; });
}

int bench(const Settings& settings) {
  TrainOptions options =
      random_training(settings, settings.text("dir", "bench-data"), settings.text("preset", "gpt2-124m"));
  options.max_steps = settings.integer("steps", 4);
  options.max_grad_norm = settings.real("clip", 1);
  options.save_steps = 0;
  const double share = settings.real("memory", 0.25);
  options.memory_bytes = static_cast<std::int64_t>(share * static_cast<double>(run_plan(options).in_memory_bytes));

  std::vector<double> ratios;
  std::vector<double> all_off;
  std::printf("%-6s %14s %14s %8s\n", "round", "off, s a step", "on, s a step", "ratio");
  for (std::int64_t round = 0; round < settings.integer("rounds", 5); ++round) {
    // Which goes first changes every round.
    const bool on_first = round % 2 == 1;
    const double first = median(step_seconds(options, on_first));
    const double second = median(step_seconds(options, !on_first));
    const double off = on_first ? second : first;
    const double on = on_first ? first : second;
    std::printf("%-6ld %14.4f %14.4f %8.4f\n", static_cast<long>(round), off, on, on / off);
    std::fflush(stdout);
    ratios.push_back(on / off);
    all_off.push_back(off);
  }
  step_seconds(options, true);
  const double one = event_seconds();
  const std::int64_t events = events_a_step(options.output_dir);
  std::printf("median ratio %.4f; one event takes %.1f ns, a step has %ld of them: %.4f%% of it\n", median(ratios),
              one * 1e9, static_cast<long>(events), 100 * one * static_cast<double>(events) / median(all_off));
  std::filesystem::remove_all(options.output_dir);
  return 0;
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) { return spillway::bench::run_bench(argc, argv, spillway::bench::bench); }
