// Measures this machine: what the ops of a Program take, and what the spill directories carry.
#pragma once

#include <filesystem>
#include <vector>

#include "executor/kernel_table.h"
#include "sim/simulate.h"

namespace spillway {

// Seconds of each op of the Program on `threads` threads: every class of op is run a few times on buffers of its own,
// the median counts. Takes memory for the operands of the largest op, outside any budget.
std::vector<double> measure_ops(const Program& program, KernelCache& kernels, int threads);

struct DiskRates {
  double read_bytes_per_second = 0;
  double write_bytes_per_second = 0;
  double mixed_bytes_per_second = 0;
};

// Transfers of `block_bytes` as the executor makes them, over `file_bytes` of a nameless file. Throws UserError when
// the directory cannot be written, DeviceError when the disk fails.
DiskRates measure_disk(const std::filesystem::path& directory, std::int64_t block_bytes, std::int64_t file_bytes);

}  // namespace spillway
