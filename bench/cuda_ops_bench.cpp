// How long each class of op of a training step takes on a CUDA device, one after the other and alone: where a step's
// time goes there, and what share of the measured rates it reaches.
//   cuda_ops_bench [preset=gpt2-124m] [sequences=16] [tokens=1024] [rounds=5]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "cuda/cuda.h"
#include "executor/kernel_table.h"
#include "machine/rates.h"
#include "model/presets.h"
#include "model/programs.h"
#include "ops/embedding/embedding.h"
#include "ops/rope/rope.h"
#include "program/spec.h"
#include "sim/op_rates.h"

namespace spillway::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t page_bytes = 2 * mib;

std::int64_t operand_bytes(const KernelKey& key) {
  std::int64_t bytes = 0;
  for (const auto* types : {&key.reads, &key.writes}) {
    for (const ValueType& type : *types) bytes += round_up(type.bytes(), 256);
  }
  return bytes;
}

// Operands one after the other; what is written lies beside what is read.
struct Operands {
  std::vector<const std::byte*> reads;
  std::vector<std::byte*> writes;

  Operands(const KernelKey& key, std::byte* at) {
    for (const ValueType& type : key.reads) {
      reads.push_back(type.rows == 0 ? nullptr : at);
      at += round_up(type.bytes(), 256);
    }
    for (const ValueType& type : key.writes) {
      writes.push_back(at);
      at += round_up(type.bytes(), 256);
    }
  }
};

// Small numbers, as floats or bf16.
void fill(Accelerator& device, std::int64_t bytes) {
  std::vector<std::byte> page(static_cast<std::size_t>(page_bytes));
  for (std::size_t i = 0; i < page.size(); i += 4) {
    page[i] = static_cast<std::byte>(i / 4 % 251);
    page[i + 1] = std::byte{0x3c};
    page[i + 2] = static_cast<std::byte>(i / 4 % 113);
    page[i + 3] = std::byte{0x3c};
  }
  for (std::int64_t at = 0; at < bytes; at += page_bytes) device.put(device.address(at), page.data(), page_bytes);
}

// What whole numbers are among a step's: ids spread over a vocabulary, or the places of tokens in their sequences.
struct Indices {
  std::int64_t vocabulary = 0;
  std::int64_t sequence_length = 0;
  std::int64_t position_rows = 0;  // of a table of positions, whose gradient is embed_grad too

  std::vector<std::int32_t> of(const KernelKey& key, const ValueType& type) const {
    const bool are_positions = key.spec == &rope_spec || key.spec == &add_positions_spec ||
                               (key.spec == &embed_grad_spec && key.writes[0].rows == position_rows);
    std::mt19937 random(7);
    std::vector<std::int32_t> made;
    for (std::int64_t i = 0; i < type.elements(); ++i) {
      const std::int64_t index = are_positions ? i % sequence_length : static_cast<std::int64_t>(random()) % vocabulary;
      made.push_back(static_cast<std::int32_t>(index));
    }
    return made;
  }
};

void put_indices(Accelerator& device, const KernelKey& key, const Operands& operands, const Indices& indices) {
  for (std::size_t r = 0; r < key.reads.size(); ++r) {
    const ValueType& type = key.reads[r];
    if (type.dtype != DType::i32) continue;
    const std::vector<std::int32_t> ids = indices.of(key, type);
    device.put(const_cast<std::byte*>(operands.reads[r]), reinterpret_cast<const std::byte*>(ids.data()), type.bytes());
  }
}

double seconds_of(Accelerator& device, const KernelKey& key, const Kernel& kernel, const Indices& indices, int rounds) {
  const Operands operands(key, device.address(0));
  put_indices(device, key, operands, indices);
  const auto run = [&] { kernel.run(0, {operands.reads, operands.writes, {}}); };
  run();
  device.wait(device.mark());
  const auto start = Clock::now();
  for (int round = 0; round < rounds; ++round) run();
  device.wait(device.mark());
  return std::chrono::duration<double>(Clock::now() - start).count() / rounds;
}

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

int run(const std::string& preset, std::int64_t sequences, std::int64_t tokens, int rounds) {
  const Preset* const found = find_preset(preset);
  if (found == nullptr) throw UserError("{} is no preset", preset);
  const Model model(found->config, DType::bf16, Purpose::training, {.large_head = true});
  StepShape shape;
  shape.sequences = sequences;
  shape.sequence_length = tokens;
  shape.micro_batches = 1;
  const TrainingProgram step = record_training(model, shape);
  const std::shared_ptr<Accelerator> device = open_cuda_device();
  const MachineRates rates = device->measured({});
  const OpClasses classes = classes_of(step.program);
  std::vector<KernelKey> keys(classes.classes.size());
  for (std::size_t op = 0; op < step.program.ops.size(); ++op) {
    keys[classes.of_op[op]] = key_of(step.program, step.program.ops[op]);
  }
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::int64_t most_bytes = 0;
  for (const KernelKey& key : keys) {
    kernels.push_back(device->make_kernel(key));
    most_bytes = std::max(most_bytes, operand_bytes(key));
  }
  PagePoolOptions host;
  host.page_count = 1;
  host.address_bytes = host.page_bytes;
  HostPagePool pool(host);
  const std::int64_t pages = divide_up(most_bytes, page_bytes);
  device->reserve({page_bytes, pages, pages * page_bytes, 4096}, pool);
  for (std::int64_t page = 0; page < pages; ++page) {
    const auto id = static_cast<PageId>(page);
    device->attach(page * page_bytes, std::span(&id, 1), DeviceStream::compute);
  }
  fill(*device, pages * page_bytes);
  const Indices indices{found->config.vocab_size, tokens, found->config.max_position_embeddings};
  std::map<std::string, Row> rows;
  for (std::size_t c = 0; c < keys.size(); ++c) {
    const auto count = static_cast<double>(classes.count[c]);
    Row& row = rows[classes.classes[c].op];
    row.seconds += count * seconds_of(*device, keys[c], *kernels[c], indices, rounds);
    row.flops += count * classes.classes[c].flops;
    row.bytes += count * classes.classes[c].bytes;
    row.ops += classes.count[c];
  }
  show(rows, rates);
  device->give_back();
  return 0;
}

}  // namespace
}  // namespace spillway::bench

int main(int count, char** arguments) {
  const auto number = [&](int i, std::int64_t otherwise) { return count > i ? std::stoll(arguments[i]) : otherwise; };
  try {
    return spillway::bench::run(count > 1 ? arguments[1] : "gpt2-124m", number(2, 16), number(3, 1024),
                                static_cast<int>(number(4, 5)));
  } catch (const spillway::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
