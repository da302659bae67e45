// tokens/s of training from random weights under several budgets and options against the same in memory, alternated in
// one run, with the machine's own limits beside each round.
//   train_bench [preset=gpt2-124m] [micro_batches=4] [tokens=1024] [settings=0.25,0.12] [rounds=5] [steps=3]
//     [warm_up=2] [dtype=auto] [dir=bench-data]
// The runs are all loaded at once, which has to fit in the machine's memory, and take turns of `steps` steps, after
// `warm_up` steps each that do not count. The first step of a turn does not count either, unless it is the only one
// (paced_run.h says what that hides, which is little where a step is long).
// What the disk carries is measured before and after each turn; the bound of a turn is by the mean of both, and turns
// between which it changes by more than a tenth do not count for the share of the bound.
// A setting is a share of the memory in which nothing moves, and options of `spillway train` where they are not the
// defaults: 0.25, 0.25+max_grad_norm=1e9+clip_mode=speculative, 0.25+recompute=none+overlap_steps=false. All are
// compared with training in memory without clipping.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "device/memory_info.h"
#include "machine_limits.h"
#include "paced_run.h"
#include "session/options.h"
#include "training_runs.h"

namespace spillway::bench {
namespace {

constexpr double most_drift = 0.1;

struct Tried {
  std::string text;
  double share = 1;  // of the memory in which nothing moves
  std::int64_t memory_bytes = 0;
  PacedRun run;
  std::vector<double> rates;   // tokens/s
  std::vector<double> ratios;  // to the same round in memory
  std::vector<double> shares;  // of what compute, as in memory, or the disk allows; of turns with a steady disk
  std::vector<double> disk_uses;
};

// "order=layer": as on the command line.
void set_option(TrainOptions& options, const std::string& text) {
  const std::string key = text.substr(0, text.find('='));
  const std::vector<Option> rows = options_of(options);
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const Option& option) { return option.key == key; });
  if (row == rows.end()) throw UserError("settings: train has no option '{}'", key);
  const std::string value = text.substr(std::min(text.size(), key.size() + 1));
  spillway::set_option(*row, {&value, 1}, key);
}

// The first is the run in memory. Each is a process, made before this one has threads.
std::vector<Tried> tried_of(const Settings& settings, const TrainOptions& options) {
  std::vector<Tried> all;
  for (const std::string& text : items("1," + settings.text("settings", "0.25,0.12"))) {
    const std::vector<std::string> parts = items(text, '+');
    TrainOptions changed = options;
    changed.output_dir += std::to_string(all.size());
    for (std::size_t i = 1; i < parts.size(); ++i) set_option(changed, parts[i]);
    all.push_back({all.empty() ? "in memory" : text, std::stod(parts.at(0)), 0, PacedRun(changed), {}, {}, {}, {}});
  }
  return all;
}

void give_memory(std::vector<Tried>& all, std::int64_t in_memory_bytes) {
  std::int64_t needed = 0;
  for (Tried& tried : all) {
    tried.memory_bytes = static_cast<std::int64_t>(tried.share * static_cast<double>(in_memory_bytes));
    tried.run.set_memory_bytes(tried.memory_bytes);
    needed += tried.memory_bytes;
  }
  if (const std::int64_t available = available_memory_bytes(); needed > available)
    throw UserError("all runs at once take {}, and {} are available: give fewer settings", format_bytes(needed),
                    format_bytes(available));
}

struct Limits {
  double matrix = 0;
  double product = 0;
  double memory = 0;
};

Limits limits() {
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  return {matrix_rate_bf16(threads), product_rate_bf16(threads), memory_bandwidth(threads)};
}

// The times of these steps do not count.
void warm_up_all(std::vector<Tried>& all, std::int64_t steps) {
  for (Tried& tried : all) {
    for (const PacedStep& step : tried.run.turn(steps))
      std::printf("  %-50s warms up %.2f s\n", tried.text.c_str(), step.seconds);
    std::fflush(stdout);
  }
}

void take_turn(Tried& tried, const Tried& in_memory, std::int64_t steps, double tokens) {
  const std::vector<PacedStep> made = tried.run.turn(steps);
  std::vector<double> rates;
  for (std::size_t s = made.size() > 1 ? 1 : 0; s < made.size(); ++s) rates.push_back(made[s].tokens_per_second);
  tried.rates.push_back(median(rates));
  tried.ratios.push_back(tried.rates.back() / in_memory.rates.back());
  tried.disk_uses.push_back(made.back().disk_bytes * tried.rates.back() / tokens);
  std::printf("  %-50s %10.1f tokens/s, ratio %.3f, disk %.3g B a step, %.3g B/s\n", tried.text.c_str(),
              tried.rates.back(), tried.ratios.back(), made.back().disk_bytes, tried.disk_uses.back());
}

// Of the turn just taken, with what the disk carried before and after it.
void weigh_turn(Tried& tried, double disk_before, double disk_after) {
  const double disk = (disk_before + disk_after) / 2;
  const double bound_by_disk = tried.disk_uses.back() / disk;
  const double share = std::max(tried.ratios.back(), bound_by_disk);
  const bool steady = std::fabs(disk_after / disk_before - 1) <= most_drift;
  if (steady) tried.shares.push_back(share);
  std::printf("  %-50s of its bound %.3f, by a disk of %.3g and %.3g B/s%s\n", "", share, disk_before, disk_after,
              steady ? "" : ": does not count");
  std::fflush(stdout);
}

int bench(const Settings& settings) {
  const std::filesystem::path dir = settings.text("dir", "bench-data");
  const std::string preset = settings.text("preset", "gpt2-124m");
  TrainOptions options = random_training(settings, dir, preset);
  const std::int64_t warm_up = settings.integer("warm_up", 2);
  const std::int64_t rounds = settings.integer("rounds", 5);
  const std::int64_t steps = settings.integer("steps", 3);
  if (std::min({warm_up, rounds, steps}) < 1) throw UserError("warm_up, rounds and steps are 1 or more");
  options.max_steps = warm_up + rounds * steps;
  std::vector<Tried> all = tried_of(settings, options);
  const PlanReport plan = run_plan(options, true);  // measures what runs choose their plans by, once for this program
  give_memory(all, plan.in_memory_bytes);
  const auto tokens = static_cast<double>(plan.tokens_per_step);
  std::printf("%s, %.0f tokens a step, %s; in memory from %s, smallest %s\n", preset.c_str(), tokens,
              plan.dtype.c_str(), format_bytes(plan.in_memory_bytes).c_str(),
              format_bytes(plan.min_memory_bytes).c_str());
  warm_up_all(all, warm_up);
  std::vector<double> matrix_rates;
  for (std::int64_t round = 0; round < rounds; ++round) {
    const auto [matrix, product, memory] = limits();
    std::printf("round %ld: matrix %.3g, product %.3g FLOP/s; memory %.3g B/s\n", static_cast<long>(round), matrix,
                product, memory);
    matrix_rates.push_back(matrix);
    take_turn(all.front(), all.front(), steps, tokens);
    double disk = disk_mixed_bandwidth(dir, gib);
    for (Tried& tried : std::span(all).subspan(1)) {
      take_turn(tried, all.front(), steps, tokens);
      const double disk_after = disk_mixed_bandwidth(dir, gib);
      weigh_turn(tried, disk, disk_after);
      disk = disk_after;
    }
  }
  const double wide = median(all.front().rates);
  std::printf("medians: in memory %.1f tokens/s, %.0f%% of the matrix rate by 6 x parameters\n", wide,
              100 * wide * 6.0 * static_cast<double>(plan.parameters) / median(matrix_rates));
  for (const Tried& tried : std::span(all).subspan(1)) {
    const std::string share = tried.shares.empty() ? "unknown" : fmt::format("{:.3f}", median(tried.shares));
    std::printf("  %-50s %10.1f tokens/s, ratio %.3f, of its bound %s (%zu turns), disk %.3g B/s, budget %s\n",
                tried.text.c_str(), median(tried.rates), median(tried.ratios), share.c_str(), tried.shares.size(),
                median(tried.disk_uses), format_bytes(tried.memory_bytes).c_str());
  }
  return 0;
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) { return spillway::bench::run_bench(argc, argv, spillway::bench::bench); }
