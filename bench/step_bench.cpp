// One short training run in memory, and the machine's matrix rate and one product before it, as one line of JSON. For
// comparisons that alternate with other programs: bench/peers/compare.
//   step_bench [preset=gpt2-124m] [micro_batches=4] [steps=3] [dtype=bf16] [clip=0] [dir=bench-data]
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>

#include "machine_limits.h"
#include "training_runs.h"

namespace spillway::bench {
namespace {

// FLOPs a token: 2 forward and 4 backward for each parameter of a matrix, and the products of causal attention.
double flops_per_token(const PlanReport& plan, double attention_width, double layers, double sequence_length) {
  return 6.0 * static_cast<double>(plan.parameters) + 6.0 * layers * attention_width * sequence_length;
}

int bench(const Settings& settings) {
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  const std::string preset = settings.text("preset", "gpt2-124m");
  const TrainOptions options = random_training(settings, settings.text("dir", "bench-data"), preset);
  const PlanReport plan = run_plan(options);
  const double matrix = matrix_rate_bf16(threads);
  const double product = product_rate_bf16(threads);
  const StepRates rates = run_steps(options, plan.in_memory_bytes);
  const double flops = flops_per_token(plan, settings.real("width", 768), settings.real("layers", 12), 1024);
  std::printf(
      "{\"tokens_per_second\": %.2f, \"matrix\": %.4g, \"product\": %.4g, \"flops_per_token\": %.4g, \"parameters\": "
      "%ld, \"tokens_per_step\": %ld}\n",
      rates.tokens_per_second, matrix, product, flops, static_cast<long>(plan.parameters),
      static_cast<long>(plan.tokens_per_step));
  return 0;
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) { return spillway::bench::run_bench(argc, argv, spillway::bench::bench); }
