// tokens/s of training from random weights, in memory and at a share of that memory, alternated in one run with the
// machine's own limits beside each round.
//   train_bench [preset=gpt2-124m] [micro_batches=4] [share=0.25] [rounds=5] [steps=3] [clip=0] [dir=bench-data]
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "base/bytes.h"
#include "limits.h"
#include "session/session.h"

namespace spillway::bench {
namespace {

struct Quiet : TrainObserver {
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

// uint16 ids that no model knows: speed does not depend on them.
void write_tokens(const std::filesystem::path& path, std::int64_t count, std::int64_t vocab_size) {
  std::string header = "{'descr': '<u2', 'fortran_order': False, 'shape': (" + std::to_string(count) + ",), }";
  header.resize(117, ' ');
  header += '\n';
  std::ofstream file(path, std::ios::binary);
  file.write("\x93NUMPY\x01\x00\x76\x00", 10);
  file << header;
  std::uint64_t state = 1;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const auto id = static_cast<std::uint16_t>((state >> 33) % static_cast<std::uint64_t>(vocab_size));
    file.write(reinterpret_cast<const char*>(&id), 2);
  }
}

struct Round {
  double tokens_per_second = 0;
  double disk_bytes = 0;  // a step, both ways
};

Round run_once(TrainOptions options, std::int64_t memory_bytes) {
  std::filesystem::remove_all(options.output_dir);
  options.memory_bytes = memory_bytes;
  Quiet run;
  run_train(options, run);
  std::filesystem::remove_all(options.output_dir);
  std::vector<double> rates;
  for (std::size_t s = 1; s < run.steps.size(); ++s)
    rates.push_back(run.steps[s].tokens_per_second);  // the first warms up
  return {median(rates), static_cast<double>(run.steps.back().disk_read_bytes + run.steps.back().disk_write_bytes)};
}

int bench(std::map<std::string, std::string> given) {
  const auto setting = [&](const std::string& key, const std::string& otherwise) {
    return given.contains(key) ? given[key] : otherwise;
  };
  const std::filesystem::path dir = setting("dir", "bench-data");
  const double share = std::stod(setting("share", "0.25"));
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
  options.max_seq_len = 1024;
  options.per_device_train_batch_size = 1;
  options.gradient_accumulation_steps = std::stoll(setting("micro_batches", "4"));
  options.max_steps = std::stoll(setting("steps", "3"));
  options.max_grad_norm = std::stod(setting("clip", "0"));
  const PlanReport plan = run_plan(options);
  const auto quarter = static_cast<std::int64_t>(share * static_cast<double>(plan.in_memory_bytes));
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  std::printf("%s, %ld tokens a step, %s; in memory from %s, smallest %s, tried at %s\n", init.preset.c_str(),
              static_cast<long>(plan.tokens_per_step), plan.dtype.c_str(), format_bytes(plan.in_memory_bytes).c_str(),
              format_bytes(plan.min_memory_bytes).c_str(), format_bytes(quarter).c_str());
  std::printf("%-6s %12s %12s %7s %12s %12s %12s %12s %12s\n", "round", "in memory", "at share", "ratio",
              "disk B/s used", "matrix", "product", "memory B/s", "disk B/s");
  std::vector<double> wide_rates, tight_rates, ratios, matrix_rates, disk_rates;
  const double flops_per_token = 6.0 * static_cast<double>(plan.parameters);
  for (int round = 0; round < std::stoi(setting("rounds", "5")); ++round) {
    const double matrix = matrix_rate_bf16(threads);
    const double product = product_rate_bf16(threads);
    const double memory = memory_bandwidth(threads);
    const double disk = disk_mixed_bandwidth(dir, gib);
    const Round wide = run_once(options, plan.in_memory_bytes);
    const Round tight = run_once(options, quarter);
    const double used = tight.disk_bytes * tight.tokens_per_second / static_cast<double>(plan.tokens_per_step);
    std::printf("%-6d %12.1f %12.1f %7.3f %12.3g %12.3g %12.3g %12.3g %12.3g\n", round, wide.tokens_per_second,
                tight.tokens_per_second, tight.tokens_per_second / wide.tokens_per_second, used, matrix, product,
                memory, disk);
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

int main(int argc, char** argv) {
  std::map<std::string, std::string> given;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    given[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }
  return spillway::bench::bench(given);
}
