// What it costs to record events: runs with everything on (events, flight record, live numbers, trace, event
// files, endpoint) and with everything off, alternated; and the cost of one event, times the events of a step.
//   telemetry_bench [preset=gpt2-124m] [micro_batches=4] [memory=SHARE of in-memory, 0.25] [rounds=5] [steps=4]
//                   [dir=bench-data]
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include "base/bytes.h"
#include "session/session.h"
#include "telemetry/flight_record.h"

namespace spillway::bench {
namespace {

// Takes what is told, as the terminal does, and shows nothing.
struct Listener : TrainObserver {
  void note(std::string_view) override {}
  void started(const RunSummary&) override {}
  void step(const StepRecord& record) override { steps.push_back(record); }
  void finished(const RunEnd&) override {}
  std::vector<StepRecord> steps;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void write_tokens(const std::filesystem::path& path, std::int64_t count, std::uint16_t most) {
  std::string header = "{'descr': '<u2', 'fortran_order': False, 'shape': (" + std::to_string(count) + ",), }";
  header.resize(117, ' ');
  header += '\n';
  std::ofstream file(path, std::ios::binary);
  file.write("\x93NUMPY\x01\x00\x76\x00", 10);
  file << header;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto id = static_cast<std::uint16_t>(i * 7919 % most);
    file.write(reinterpret_cast<const char*>(&id), 2);
  }
}

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
  Listener run;
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

int bench(std::map<std::string, std::string> given) {
  const auto setting = [&](const std::string& key, const std::string& otherwise) {
    return given.contains(key) ? given[key] : otherwise;
  };
  const std::filesystem::path dir = setting("dir", "bench-data");
  std::filesystem::create_directories(dir);
  InitOptions init;
  init.preset = setting("preset", "gpt2-124m");
  init.tokenizer = "bytes";
  init.output = (dir / init.preset).string();
  if (!std::filesystem::exists(init.output)) run_init(init);
  write_tokens(dir / "tokens.npy", 200'000, 257);
  TrainOptions options;
  options.model = init.output;
  options.data = {(dir / "tokens.npy").string()};
  options.output_dir = (dir / "out").string();
  options.spill_dir = {dir.string()};
  options.per_device_train_batch_size = 1;
  options.gradient_accumulation_steps = std::stoll(setting("micro_batches", "4"));
  options.max_steps = std::stoll(setting("steps", "4"));
  const double share = std::stod(setting("memory", "0.25"));
  options.memory_bytes = static_cast<std::int64_t>(share * static_cast<double>(run_plan(options).in_memory_bytes));

  std::vector<double> ratios;
  std::vector<double> all_off;
  std::printf("%-6s %14s %14s %8s\n", "round", "off, s a step", "on, s a step", "ratio");
  for (int round = 0; round < std::stoi(setting("rounds", "5")); ++round) {
    // Which goes first changes every round.
    const bool on_first = round % 2 == 1;
    const double first = median(step_seconds(options, on_first));
    const double second = median(step_seconds(options, !on_first));
    const double off = on_first ? second : first;
    const double on = on_first ? first : second;
    std::printf("%-6d %14.4f %14.4f %8.4f\n", round, off, on, on / off);
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

int main(int argc, char** argv) {
  std::map<std::string, std::string> given;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    given[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }
  return spillway::bench::bench(given);
}
