// How long each class of op of a training step takes on a CUDA device, as predictions have it: where a step's time goes
// there, and what share of the measured rates it reaches.
//   cuda_ops_bench [preset=gpt2-124m] [sequences=16] [tokens=1024] [micro_batches=1]
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "cuda/cuda.h"
#include "machine/rates.h"
#include "model/presets.h"
#include "model/programs.h"
#include "probe/probe.h"
#include "sim/op_rates.h"

namespace spillway::bench {
namespace {

constexpr double most_seconds = 20;
constexpr std::int64_t most_bytes = 4 * gib;

struct Row {
  double seconds = 0;  // in a step
  double flops = 0;
  double bytes = 0;
  std::int64_t ops = 0;
};

void show(const std::map<std::string, Row>& rows, const MachineRates& rates) {
  std::vector<std::pair<std::string, Row>> sorted(rows.begin(), rows.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  double all = 0;
  for (const auto& [name, row] : sorted) all += row.seconds;
  std::printf("%-16s%8s%12s%10s%12s%12s\n", "op", "ops", "ms a step", "share", "TFLOP/s", "GB/s");
  for (const auto& [name, row] : sorted) {
    std::printf("%-16s%8lld%12.3f%9.1f%%%12.1f%12.1f\n", name.c_str(), static_cast<long long>(row.ops),
                1e3 * row.seconds, 100 * row.seconds / all, 1e-12 * row.flops / row.seconds,
                1e-9 * row.bytes / row.seconds);
  }
  std::printf("products %.0f TFLOP/s in bf16, memory %.0f GB/s, link %.1f GB/s up, %.1f down\n",
              1e-12 * rates.bf16_flops_per_second, 1e-9 * rates.memory_bandwidth(),
              1e-9 * rates.link.up_bytes_per_second, 1e-9 * rates.link.down_bytes_per_second);
  std::printf("=> %.1f ms of ops a step, most in %s (%.0f%%)\n", 1e3 * all, sorted.front().first.c_str(),
              100 * sorted.front().second.seconds / all);
}

int run(const std::string& preset, std::int64_t sequences, std::int64_t tokens, std::int64_t micro_batches) {
  const Preset* const found = find_preset(preset);
  if (found == nullptr) throw UserError("{} is no preset", preset);
  const Model model(found->config, DType::bf16, Purpose::training, {.large_head = true});
  StepShape shape;
  shape.sequences = sequences;
  shape.sequence_length = tokens;
  shape.micro_batches = micro_batches;
  const TrainingProgram step = record_training(model, shape);
  const std::shared_ptr<Accelerator> device = open_cuda_device();
  MachineRates rates = device->measured({});
  measure_device_ops(step.program, *device, {most_seconds, most_bytes, true}, rates);
  const OpClasses classes = classes_of(step.program);
  std::map<std::string, Row> rows;
  for (std::size_t c = 0; c < classes.classes.size(); ++c) {
    const OpClass& what = classes.classes[c];
    if (rates.find(what) == nullptr) throw UserError("{} {} could not be measured", what.op, what.shape);
    const auto count = static_cast<double>(classes.count[c]);
    Row& row = rows[what.op];
    row.seconds += count * rates.find(what)->seconds;
    row.flops += count * what.flops;
    row.bytes += count * what.bytes;
    row.ops += classes.count[c];
  }
  show(rows, rates);
  return 0;
}

}  // namespace
}  // namespace spillway::bench

int main(int count, char** arguments) {
  const auto number = [&](int i, std::int64_t otherwise) { return count > i ? std::stoll(arguments[i]) : otherwise; };
  try {
    return spillway::bench::run(count > 1 ? arguments[1] : "gpt2-124m", number(2, 16), number(3, 1024), number(4, 1));
  } catch (const spillway::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
