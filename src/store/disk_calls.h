// The few blocking calls with which commits are written and read, apart from the asynchronous engine that moves pages.
// The base class asks the kernel; tests put a simulated disk or a slow flush in its place.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace spillway {

// Any thread may call these, also at once.
class DiskCalls {
 public:
  virtual ~DiskCalls() = default;

  // Bytes transferred, fewer than asked for at the end of the file or when interrupted, or -errno.
  virtual std::int64_t read(int descriptor, std::int64_t offset_bytes, std::span<std::byte> into);
  virtual std::int64_t write(int descriptor, std::int64_t offset_bytes, std::span<const std::byte> from);
  // Makes the completed writes of this file durable, with what is needed to find them. errno or 0.
  virtual int flush(int descriptor);
};

// The kernel's calls; lives as long as the process.
DiskCalls& system_disk_calls();

// Around `inner`, which must outlive it: every flush takes this much longer, as on a disk without a write cache.
std::unique_ptr<DiskCalls> make_slow_flush_calls(DiskCalls& inner, std::chrono::microseconds delay);

}  // namespace spillway
