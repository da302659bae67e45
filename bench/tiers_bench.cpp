// What a device whose memory is too small costs: tokens a second on a virtual device against those without one, over
// shares of the device and budgets of the host, each with the bytes over link and disk and what was foretold.
// Alternated in rounds; medians.
//   tiers_bench [preset=gpt2-124m] [micro_batches=4] [device=0.1,0.25,0.5] [host=0,1] [link=8e9] [rounds=3] [steps=4]
//     [direct=0] [clip=0] [dtype=auto] [dir=bench-data]
// device: shares of what holds a whole step. host: shares of the way from the smallest budget to the one from which
// nothing is on disk. link: bytes a second, each way. direct: 0, by way of the host; 1, past it; or both, 0,1.
#include <fmt/format.h>

#include <cstdio>

#include "base/bytes.h"
#include "training_runs.h"

namespace spillway::bench {
namespace {

std::vector<double> shares_of(const std::string& list) {
  std::vector<double> shares;
  for (const std::string& one : items(list)) shares.push_back(std::stod(one));
  return shares;
}

struct Setting {
  TrainOptions options;
  std::vector<double> rates = {};  // tokens a second, by round
};

std::int64_t between(std::int64_t least, std::int64_t most, double share) {
  return least + static_cast<std::int64_t>(share * static_cast<double>(most - least));
}

std::vector<Setting> settings_of(const Settings& given, const TrainOptions& plain, std::int64_t in_memory_bytes) {
  TrainOptions options = plain;
  options.device = "virtual";
  options.link_up = options.link_down = static_cast<std::int64_t>(given.real("link", 8e9));
  const std::int64_t whole = whole_device_bytes(options, in_memory_bytes);
  std::vector<Setting> all;
  for (const double device : shares_of(given.text("device", "0.1,0.25,0.5"))) {
    options.device_memory_bytes = static_cast<std::int64_t>(device * static_cast<double>(whole));
    options.memory_bytes = 0;
    const PlanReport report = run_plan(options);
    if (!report.fits) {
      std::printf("%s\n", report.advice.c_str());
      continue;
    }
    for (const double host : shares_of(given.text("host", "0,1"))) {
      for (const double direct : shares_of(given.text("direct", "0"))) {
        all.push_back({options});
        all.back().options.memory_bytes = between(report.min_memory_bytes, report.in_memory_bytes, host);
        all.back().options.device_direct = direct > 0 ? "true" : "false";
      }
    }
  }
  return all;
}

void print(const Setting& setting, double plain) {
  const PlanReport report = run_plan(setting.options, true);
  const double rate = median(setting.rates);
  std::printf("%s\n",
              fmt::format("{:>10} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9.0f} {:>6.3f} {:>9.0f}  {}",
                          format_bytes(setting.options.device_memory_bytes), format_bytes(setting.options.memory_bytes),
                          format_bytes(report.link_up_bytes_per_step), format_bytes(report.link_down_bytes_per_step),
                          format_bytes(report.disk_read_bytes_per_step + report.disk_write_bytes_per_step),
                          format_bytes(report.direct_read_bytes_per_step + report.direct_write_bytes_per_step), rate,
                          rate / plain, static_cast<double>(report.tokens_per_step) / report.prediction->step_seconds,
                          report.prediction->bottleneck)
                  .c_str());
}

int bench(const Settings& given) {
  const TrainOptions options =
      random_training(given, given.text("dir", "bench-data"), given.text("preset", "gpt2-124m"));
  const std::int64_t in_memory_bytes = run_plan(options).in_memory_bytes;
  std::vector<Setting> settings = settings_of(given, options, in_memory_bytes);
  std::vector<double> plain;
  for (std::int64_t round = given.integer("rounds", 3); round > 0; --round) {
    plain.push_back(run_steps(options, in_memory_bytes).tokens_per_second);
    for (Setting& setting : settings) {
      setting.rates.push_back(run_steps(setting.options, setting.options.memory_bytes).tokens_per_second);
    }
  }
  std::printf("without a device, in memory: %.0f tokens/s\n", median(plain));
  std::printf("    device     memory        up      down      disk    direct  tokens/s  ratio foretold  binds\n");
  for (const Setting& setting : settings) print(setting, median(plain));
  return 0;
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) { return spillway::bench::run_bench(argc, argv, spillway::bench::bench); }
