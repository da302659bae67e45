// What the machine can do, measured beside a benchmark: matrix rate, memory bandwidth, disk bandwidth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "device/thread_pool.h"

namespace spillway::bench {

// A loop of the best instruction the processor has, operands in registers, FLOP/s on `threads` threads: in f32
// multiply-add, in bf16 AMX's where products may use it, otherwise vdpbf16ps or multiply-add, whichever is faster.
double matrix_rate_bf16(int threads);
double matrix_rate_f32(int threads);

// One product of 1024 x 768 by 768 x 3072 through the kernels training uses, panels shared by the threads. FLOP/s.
double product_rate_bf16(int threads);

// Copies between buffers larger than the caches. Bytes read plus written a second, on `threads` threads.
double memory_bandwidth(int threads);

// Memory that an op reads, writes, or both.
struct Stream {
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
  bool read = false;
  bool written = false;
};

// Reads and writes the streams side by side, in tasks of about 64 KiB, with ordinary stores. What is read stays as it
// is, what is only written becomes zero. Needs AVX2.
void move_streams(ThreadPool& pool, std::span<const Stream> streams);

// Direct I/O of 4 MiB at depth 16, half reads and half writes, in a file of `file_bytes` in `dir`. Bytes a second.
double disk_mixed_bandwidth(const std::filesystem::path& dir, std::int64_t file_bytes);

}  // namespace spillway::bench
