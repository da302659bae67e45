// tokens/s of training from random weights under several budgets and options against the same in memory, alternated in
// one run, with the machine's own limits beside each round.
//   train_bench [preset=gpt2-124m] [micro_batches=4] [tokens=1024] [settings=0.25,0.12] [rounds=5] [steps=3]
//     [dtype=auto] [dir=bench-data]
// A setting is a share of the memory in which nothing moves, and options of `spillway train` where they are not the
// defaults: 0.25, 0.25+max_grad_norm=1e9+clip_mode=speculative, 0.25+recompute=none+overlap_steps=false. All are
// compared with training in memory without clipping.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "limits.h"
#include "session/options.h"
#include "training_runs.h"

namespace spillway::bench {
namespace {

struct Tried {
  std::string text;
  TrainOptions options;
  std::vector<double> rates;   // tokens/s
  std::vector<double> ratios;  // to the same round in memory
  std::vector<double> shares;  // of what compute, as in memory, or the disk allows
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

std::vector<Tried> tried_of(const Settings& settings, const TrainOptions& options, std::int64_t in_memory_bytes) {
  std::vector<Tried> all;
  for (const std::string& text : items(settings.text("settings", "0.25,0.12"))) {
    const std::vector<std::string> parts = items(text, '+');
    Tried tried{text, options, {}, {}, {}, {}};
    tried.options.memory_bytes =
        static_cast<std::int64_t>(std::stod(parts.at(0)) * static_cast<double>(in_memory_bytes));
    for (std::size_t i = 1; i < parts.size(); ++i) set_option(tried.options, parts[i]);
    all.push_back(std::move(tried));
  }
  return all;
}

struct Limits {
  double matrix = 0;
  double product = 0;
  double memory = 0;
  double disk = 0;
};

Limits limits_of(const std::filesystem::path& dir) {
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  return {matrix_rate_bf16(threads), product_rate_bf16(threads), memory_bandwidth(threads),
          disk_mixed_bandwidth(dir, gib)};
}

int bench(const Settings& settings) {
  const std::filesystem::path dir = settings.text("dir", "bench-data");
  const std::string preset = settings.text("preset", "gpt2-124m");
  const TrainOptions options = random_training(settings, dir, preset);
  const PlanReport plan = run_plan(options, true);  // measures what runs choose their plans by, once for this program
  std::vector<Tried> all = tried_of(settings, options, plan.in_memory_bytes);
  const auto tokens = static_cast<double>(plan.tokens_per_step);
  std::printf("%s, %.0f tokens a step, %s; in memory from %s, smallest %s\n", preset.c_str(), tokens,
              plan.dtype.c_str(), format_bytes(plan.in_memory_bytes).c_str(),
              format_bytes(plan.min_memory_bytes).c_str());
  std::vector<double> wide_rates, matrix_rates;
  for (std::int64_t round = 0; round < settings.integer("rounds", 5); ++round) {
    const Limits limits = limits_of(dir);
    std::printf("round %ld: matrix %.3g, product %.3g FLOP/s; memory %.3g, disk %.3g B/s\n", static_cast<long>(round),
                limits.matrix, limits.product, limits.memory, limits.disk);
    const double wide = run_steps(options, plan.in_memory_bytes).tokens_per_second;
    std::printf("  %-50s %10.1f tokens/s\n", "in memory", wide);
    wide_rates.push_back(wide);
    matrix_rates.push_back(limits.matrix);
    for (Tried& tried : all) {
      const StepRates rates = run_steps(tried.options, tried.options.memory_bytes);
      const double bound_seconds = std::max(tokens / wide, rates.disk_bytes / limits.disk);
      tried.rates.push_back(rates.tokens_per_second);
      tried.ratios.push_back(rates.tokens_per_second / wide);
      tried.shares.push_back(bound_seconds * rates.tokens_per_second / tokens);
      tried.disk_uses.push_back(rates.disk_bytes * rates.tokens_per_second / tokens);
      std::printf("  %-50s %10.1f tokens/s, ratio %.3f, of its bound %.3f, disk %.3g B a step, %.3g B/s\n",
                  tried.text.c_str(), tried.rates.back(), tried.ratios.back(), tried.shares.back(), rates.disk_bytes,
                  tried.disk_uses.back());
      std::fflush(stdout);
    }
  }
  std::printf("medians: in memory %.1f tokens/s, %.0f%% of the matrix rate by 6 x parameters\n", median(wide_rates),
              100 * median(wide_rates) * 6.0 * static_cast<double>(plan.parameters) / median(matrix_rates));
  for (const Tried& tried : all) {
    std::printf("  %-50s %10.1f tokens/s, ratio %.3f, of its bound %.3f, disk %.3g B/s, budget %s\n",
                tried.text.c_str(), median(tried.rates), median(tried.ratios), median(tried.shares),
                median(tried.disk_uses), format_bytes(tried.options.memory_bytes).c_str());
  }
  return 0;
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) { return spillway::bench::bench(spillway::bench::Settings(argc, argv)); }
