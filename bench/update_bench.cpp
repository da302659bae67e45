// Who updates what, beside a virtual device: the time of the update phase with all updates on the processor, all on the
// device, one in K there, and as chosen; each measured and as it was foretold. Alternated in rounds; medians.
//   update_bench [preset=gpt2-124m] [settings=cpu,device,2,auto] [scale=0.01] [host=1.5e9] [device=25e9] [link=55e9]
//     [device_memory=0.3] [clip=0] [clip_mode=after] [micro_batches=1] [rounds=3] [steps=3] [dtype=bf16]
//     [dir=bench-data]
// host, device: parameters a second; link: bytes a second, each way. All are those of a published machine, times
// `scale`, so that this processor keeps up with both. device_memory: a share of what holds a whole step.
#include <fmt/format.h>

#include <cstdio>
#include <sstream>

#include "base/bytes.h"
#include "training_runs.h"

namespace spillway::bench {
namespace {

struct Setting {
  TrainOptions options;
  std::vector<double> update_seconds = {};  // by round
  std::vector<double> step_seconds = {};
};

// What of a step is neither forward nor backward.
double update_seconds(const StepPrediction& prediction) {
  double seconds = prediction.step_seconds;
  for (const PhaseRow& row : prediction.phases) {
    if (row.phase != "update") seconds -= row.compute_seconds + row.wait_seconds;
  }
  return seconds;
}

std::vector<Setting> settings_of(const Settings& given, const TrainOptions& plain) {
  const double scale = given.real("scale", 0.01);
  TrainOptions options = plain;
  options.device = "virtual";
  options.clip_mode = given.text("clip_mode", "after");
  options.dtype = given.text("dtype", "bf16");
  options.link_up = options.link_down = static_cast<std::int64_t>(scale * given.real("link", 55e9));
  options.update_rate_cpu = scale * given.real("host", 1.5e9);
  options.update_rate_device = scale * given.real("device", 25e9);
  const std::int64_t whole = whole_device_bytes(options, run_plan(plain).in_memory_bytes);
  options.device_memory_bytes =
      static_cast<std::int64_t>(given.real("device_memory", 0.3) * static_cast<double>(whole));
  std::vector<Setting> all;
  std::stringstream list(given.text("settings", "cpu,device,2,auto"));
  for (std::string update_on; std::getline(list, update_on, ',');) {
    options.update_on = update_on;
    options.memory_bytes = 0;
    const PlanReport report = run_plan(options);
    if (!report.fits) {
      std::printf("%s\n", report.advice.c_str());
      continue;
    }
    all.push_back({options});
    all.back().options.memory_bytes = report.in_memory_bytes;
  }
  return all;
}

void print(const Setting& setting) {
  const PlanReport report = run_plan(setting.options, true);
  const double update = median(setting.update_seconds);
  const double foretold = update_seconds(*report.prediction);
  std::printf(
      "%s\n",
      fmt::format("{:>8} {:>6} {:>7} {:>5.1f}% {:>10} {:>10} {:>8.3f} {:>8.3f} {:>6.3f} {:>8.3f} {:>8.3f}",
                  setting.options.update_on, report.updates_on_host, report.updates_on_device,
                  100 * static_cast<double>(report.parameters_on_device) /
                      static_cast<double>(report.parameters_on_device + report.parameters_on_host),
                  format_bytes(report.link_up_bytes_per_step), format_bytes(report.link_down_bytes_per_step), update,
                  foretold, foretold / update, median(setting.step_seconds), report.prediction->step_seconds)
          .c_str());
}

int bench(const Settings& given) {
  const std::filesystem::path dir = given.text("dir", "bench-data");
  TrainOptions options = random_training(given, dir, given.text("preset", "gpt2-124m"));
  options.gradient_accumulation_steps = given.integer("micro_batches", 1);
  std::vector<Setting> settings = settings_of(given, options);
  for (std::int64_t round = given.integer("rounds", 3); round > 0; --round) {
    for (Setting& setting : settings) {
      const StepRates rates = run_steps(setting.options, setting.options.memory_bytes);
      setting.update_seconds.push_back(rates.update_seconds);
      setting.step_seconds.push_back(rates.step_seconds);
    }
  }
  std::printf("updates   host  device  share         up       down   update foretold  ratio     step foretold\n");
  for (const Setting& setting : settings) print(setting);
  return 0;
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) { return spillway::bench::run_bench(argc, argv, spillway::bench::bench); }
