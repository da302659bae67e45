// tokens/s of training from random weights, in memory and at a share of that memory, alternated in one run with the
// machine's own limits beside each round.
//   train_bench [preset=gpt2-124m] [micro_batches=4] [share=0.25] [rounds=5] [steps=3] [clip=0] [clip_mode=auto]
//     [dtype=auto] [overlap=1] [dir=bench-data]
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "limits.h"
#include "training_runs.h"

namespace spillway::bench {
namespace {

int bench(const Settings& settings) {
  const std::filesystem::path dir = settings.text("dir", "bench-data");
  const std::string preset = settings.text("preset", "gpt2-124m");
  const double share = settings.real("share", 0.25);
  const TrainOptions options = random_training(settings, dir, preset);
  const PlanReport plan = run_plan(options);
  const auto quarter = static_cast<std::int64_t>(share * static_cast<double>(plan.in_memory_bytes));
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  std::printf("%s, %ld tokens a step, %s; in memory from %s, smallest %s, tried at %s\n", preset.c_str(),
              static_cast<long>(plan.tokens_per_step), plan.dtype.c_str(), format_bytes(plan.in_memory_bytes).c_str(),
              format_bytes(plan.min_memory_bytes).c_str(), format_bytes(quarter).c_str());
  std::printf("%-6s %12s %12s %7s %12s %12s %12s %12s %12s\n", "round", "in memory", "at share", "ratio",
              "disk B/s used", "matrix", "product", "memory B/s", "disk B/s");
  std::vector<double> wide_rates, tight_rates, ratios, matrix_rates, disk_rates;
  const double flops_per_token = 6.0 * static_cast<double>(plan.parameters);
  for (std::int64_t round = 0; round < settings.integer("rounds", 5); ++round) {
    const double matrix = matrix_rate_bf16(threads);
    const double product = product_rate_bf16(threads);
    const double memory = memory_bandwidth(threads);
    const double disk = disk_mixed_bandwidth(dir, gib);
    const StepRates wide = run_steps(options, plan.in_memory_bytes);
    const StepRates tight = run_steps(options, quarter);
    const double used = tight.disk_bytes * tight.tokens_per_second / static_cast<double>(plan.tokens_per_step);
    std::printf("%-6ld %12.1f %12.1f %7.3f %12.3g %12.3g %12.3g %12.3g %12.3g\n", static_cast<long>(round),
                wide.tokens_per_second, tight.tokens_per_second, tight.tokens_per_second / wide.tokens_per_second, used,
                matrix, product, memory, disk);
    std::fflush(stdout);
    wide_rates.push_back(wide.tokens_per_second);
    tight_rates.push_back(tight.tokens_per_second);
    ratios.push_back(tight.tokens_per_second / wide.tokens_per_second);
    matrix_rates.push_back(matrix);
  }
  std::printf(
      "median: in memory %.1f tokens/s (%.0f%% of the matrix rate by 6 x parameters), at %.0f%% %.1f tokens/s, "
      "ratio %.3f\n",
      median(wide_rates), 100 * median(wide_rates) * flops_per_token / median(matrix_rates), 100 * share,
      median(tight_rates), median(ratios));
  return 0;
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) { return spillway::bench::bench(spillway::bench::Settings(argc, argv)); }
