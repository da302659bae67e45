// Runs one class of op again and again, as the compute lane would.
#pragma once

#include <functional>
#include <vector>

#include "device/thread_pool.h"
#include "executor/kernel_table.h"
#include "probe/buffer.h"

namespace spillway {

// One product of a size that training has, its FLOPs, and the memory an OpTimer needs for some of them.
KernelKey product_key(DType dtype);
inline constexpr double product_flops = 2.0 * 512 * 512 * 1024;
inline constexpr std::int64_t probe_product_bytes = std::int64_t{8} << 20;

// Of at least one; of an even number the shorter of the two in the middle, since what disturbs makes longer.
double median(std::vector<double> times);

class OpTimer {
 public:
  // `memory_bytes` for operands, half of it for what is read; `scratch_bytes` for each thread beside it.
  OpTimer(int threads, std::int64_t memory_bytes, std::int64_t scratch_bytes, bool huge_pages = true);

  // Whether its operands have room.
  bool has_room(const KernelKey& key) const;
  // The median of runs until `seconds` are over, at least one, after one that warms up.
  double seconds(const KernelKey& key, const Kernel& kernel, double seconds);
  // The time of one run, now. Each has operands of its own as far as memory goes.
  double run_once(const KernelKey& key, const Kernel& kernel);

 private:
  ThreadPool threads_;
  AlignedBytes scratch_;
  ProbeBuffer read_buffer_;
  ProbeBuffer write_buffer_;
  AlignedBytes indices_;  // always zero, whatever an op does to its writes
  Rotation reads_;
  Rotation writes_;
};

}  // namespace spillway
