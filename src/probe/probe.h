// Measures this machine: what the ops of a Program take, what the processor and its memory do, what spill directories
// carry. Everything runs on the calling thread and threads of its own, which are gone afterwards.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "executor/accelerator.h"
#include "executor/kernel_table.h"
#include "machine/rates.h"

namespace spillway {

struct ProbeLimits {
  double seconds = 2;             // an op or a pass under way is finished
  std::int64_t memory_bytes = 0;  // most that buffers take, at least 16 MiB; they are freed afterwards
  bool again = false;             // measure what is known, too
};

// This machine and this build.
MachineIdentity identify_machine();

// "ext4 on 254:0": file system of a directory, and the disk below it, whichever partition that is. `root` has the
// system's own directories.
std::string device_of(const std::filesystem::path& directory, const std::filesystem::path& root = "/");

// Times each class of op of the Program that `rates` does not know, those that weigh most in a step first, on
// `rates.threads` threads, with operands that are not in the caches, in memory like that of pages of `page_bytes`:
// small pages make products some percent slower. What does not fit in time or memory is left out. Returns how many were
// measured.
std::int64_t measure_ops(const Program& program, KernelCache& kernels, std::int64_t page_bytes,
                         const ProbeLimits& limits, MachineRates& rates);

// The same of a device's kernels, with its memory, of which nothing is reserved.
std::int64_t measure_device_ops(const Program& program, Accelerator& device, const ProbeLimits& limits,
                                MachineRates& rates);

// Rates of products, memory, and of the small things between ops, on `rates.threads` threads; `page_bytes` is the size
// of pages attached. Products are tried as products_now does, so that it may tell by them later whether the machine is
// as idle.
void measure_processor(std::int64_t page_bytes, const ProbeLimits& limits, MachineRates& rates);

// FLOP/s of products at the moment, of the size that measure_processor times, tried for `seconds`: the median, in which
// shows what else runs, where that takes what the machine can do. Takes and gives back about 10 MiB.
double products_now(DType dtype, int threads, double seconds);

// Bytes a second that updates of a processor read and write in memory, tried for `seconds` on `threads` threads with
// weights of this dtype and f32 or packed moments: the median. Takes `memory_bytes` and gives them back, at least
// least_update_bytes; of less than the caches hold, the rate is theirs.
inline constexpr std::int64_t least_update_bytes = std::int64_t{40} << 20;
double updates_now(DType dtype, bool packed, int threads, std::int64_t memory_bytes, double seconds);

// Of the file through which a disk is measured.
std::int64_t probe_file_bytes(std::int64_t block_bytes, const ProbeLimits& limits);

// Transfers of `block_bytes` as the executor makes them, through a nameless file. Throws UserError when the directory
// cannot be written, DeviceError when the disk fails.
DiskRate measure_disk(const std::filesystem::path& directory, std::int64_t block_bytes, const ProbeLimits& limits);

// The fewest requests in flight whose rate reaches nine tenths of the best: `counts` ascend, one rate for each.
std::int64_t fewest_in_flight(std::span<const std::int64_t> counts, std::span<const double> rates);

// What products took alone and beside a disk, shortly after, and the disk then.
struct BesideEachOther {
  double product_alone = 0;   // seconds of one
  double product_beside = 0;  // while the disk was busy
  double disk_beside = 0;     // bytes a second, while all threads computed
  // What a byte takes from computing. Of a virtual disk it may be much.
  double compute_seconds_per_byte() const;
};

// The round in the middle by what a byte takes from computing; at least one. Not the least slow-down of each, since
// they belong together: while the disk is slow, computing is hardly slowed down, and bytes would seem to cost nothing.
BesideEachOther usual_of(std::vector<BesideEachOther> rounds);

// How much longer products on `threads` threads and this measured disk, which reads and writes, take beside each other:
// the two slow-downs of `rates`, at least 1.
void measure_slowdowns(const DiskRate& on, int threads, const ProbeLimits& limits, MachineRates& rates);

}  // namespace spillway
