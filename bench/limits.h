// What the machine can do, measured beside a benchmark: matrix rate, memory bandwidth, disk bandwidth.
#pragma once

#include <cstdint>
#include <filesystem>

namespace spillway::bench {

// A loop of the best matrix instruction the processor has, operands in registers. FLOP/s on `threads` threads.
double matrix_rate_bf16(int threads);

// One product of 1024 x 768 by 768 x 3072 through the kernels training uses, panels shared by the threads. FLOP/s.
double product_rate_bf16(int threads);

// Copies between buffers larger than the caches. Bytes read plus written a second, on `threads` threads.
double memory_bandwidth(int threads);

// Direct I/O of 4 MiB at depth 16, half reads and half writes, in a file of `file_bytes` in `dir`. Bytes a second.
double disk_mixed_bandwidth(const std::filesystem::path& dir, std::int64_t file_bytes);

}  // namespace spillway::bench
