// Runs one op on a CUDA device, as run_to_bytes of ops_harness.h does on the CPU: on guarded, poisoned operands.
//
//   if (const std::string reason = cuda_reason(); !reason.empty()) GTEST_SKIP() << reason;
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "cuda/cuda.h"
#include "device/page_pool.h"
#include "ops_harness.h"

namespace spillway::ops_test {

// Why there is no device to test on; empty when there is one.
inline std::string cuda_reason() {
  static const std::string reason = [] {
    try {
      open_cuda_device();
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  }();
  return reason;
}

// A device with some memory reserved, all of its pages attached in order.
class ReservedDevice {
 public:
  static constexpr std::int64_t page_bytes = 2 * mib;

  ReservedDevice() : device_(open_cuda_device()) {}
  ~ReservedDevice() {
    device_->give_back();
    device_.reset();
  }
  ReservedDevice(const ReservedDevice&) = delete;
  ReservedDevice& operator=(const ReservedDevice&) = delete;

  Accelerator& operator*() const { return *device_; }
  Accelerator* operator->() const { return device_.get(); }

  // Kernels are made before.
  void reserve(std::int64_t bytes) {
    PagePoolOptions host;
    host.page_count = 4;
    host.address_bytes = 4 * host.page_bytes;
    host_ = std::make_unique<HostPagePool>(host);
    const std::int64_t pages = divide_up(bytes, page_bytes);
    device_->reserve({page_bytes, pages, pages * page_bytes, 4096}, *host_);
    for (std::int64_t page = 0; page < pages; ++page) {
      const auto id = static_cast<PageId>(page);
      device_->attach(page * page_bytes, std::span(&id, 1), DeviceStream::compute);
    }
  }
  HostPagePool& host() const { return *host_; }

 private:
  std::unique_ptr<HostPagePool> host_;  // outlives what the device does with it
  std::shared_ptr<Accelerator> device_;
};

// Where operands lie, one after the other with guards between, and what a host sees of all.
class Image {
 public:
  static constexpr std::int64_t guard_bytes = 256;

  std::int64_t place(std::int64_t bytes) {
    const std::int64_t at = guard_bytes + static_cast<std::int64_t>(bytes_.size());
    bytes_.resize(static_cast<std::size_t>(at), std::byte{0xa5});
    bytes_.resize(static_cast<std::size_t>(at + bytes), std::byte{0xff});
    bytes_.resize(static_cast<std::size_t>(round_up(at + bytes, guard_bytes) + guard_bytes), std::byte{0xa5});
    return at;
  }
  std::byte* at(std::int64_t place) { return bytes_.data() + place; }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

inline std::vector<std::vector<std::byte>> cuda_run_to_bytes(const OpCase& op, const std::vector<Share>& shares = {}) {
  const KernelKey key = key_of(op);
  ReservedDevice device;
  const std::unique_ptr<Kernel> kernel = device->make_kernel(key);
  EXPECT_EQ(kernel->tasks(), 1);
  Image image;
  std::vector<std::int64_t> places;
  for (const Matrix& read : op.reads) {
    places.push_back(image.place(read.type.bytes()));
    put(image.at(places.back()), read);
  }
  std::vector<std::int64_t> write_places;
  for (std::size_t w = 0; w < key.writes.size(); ++w) {
    const auto shared = std::find_if(shares.begin(), shares.end(),
                                     [&](const Share& share) { return static_cast<std::size_t>(share.write) == w; });
    write_places.push_back(shared != shares.end() ? places[static_cast<std::size_t>(shared->read)]
                                                  : image.place(key.writes[w].bytes()));
  }
  device.reserve(std::ssize(image.bytes()));
  device->put(device->address(0), image.bytes().data(), std::ssize(image.bytes()));
  std::vector<const std::byte*> reads;
  for (std::size_t r = 0; r < places.size(); ++r) {
    reads.push_back(op.reads[r].type.rows == 0 ? nullptr : device->address(places[r]));
  }
  std::vector<std::byte*> writes;
  for (const std::int64_t place : write_places) writes.push_back(device->address(place));

  kernel->run(0, {reads, writes, {}});

  std::vector<std::byte> after(image.bytes().size());
  device->get(after.data(), device->address(0), std::ssize(after));
  std::vector<std::byte> expected = image.bytes();
  std::vector<std::vector<std::byte>> out;
  for (std::size_t w = 0; w < write_places.size(); ++w) {
    const auto begin = static_cast<std::size_t>(write_places[w]);
    const auto bytes = static_cast<std::size_t>(key.writes[w].bytes());
    out.emplace_back(after.begin() + static_cast<std::ptrdiff_t>(begin),
                     after.begin() + static_cast<std::ptrdiff_t>(begin + bytes));
    std::copy(out.back().begin(), out.back().end(), expected.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  EXPECT_TRUE(after == expected) << op.spec->name << " changed a read, or wrote beside its writes";
  return out;
}

inline std::vector<Matrix> cuda_run(const OpCase& op) {
  const KernelKey key = key_of(op);
  const std::vector<std::vector<std::byte>> bytes = cuda_run_to_bytes(op);
  std::vector<Matrix> out;
  for (std::size_t w = 0; w < bytes.size(); ++w) out.push_back(get(bytes[w].data(), key.writes[w]));
  return out;
}

// A second run, and runs in every permitted place, give the same bits.
inline void expect_cuda_repeats(const OpCase& op) {
  const auto expected = cuda_run_to_bytes(op);
  EXPECT_TRUE(cuda_run_to_bytes(op) == expected) << op.spec->name << " differs from run to run";
  const KernelKey key = key_of(op);
  for (const Share& share : op.spec->shares) {
    const auto read = static_cast<std::size_t>(share.read);
    const auto write = static_cast<std::size_t>(share.write);
    if (read >= key.reads.size() || write >= key.writes.size()) continue;
    if (key.reads[read].bytes() != key.writes[write].bytes()) continue;  // absent, or of another dtype: no plan does
    EXPECT_TRUE(cuda_run_to_bytes(op, {share}) == expected)
        << op.spec->name << ": write " << share.write << " in the place of read " << share.read;
  }
}

inline void expect_cuda_is_cpu_to_the_bit(const OpCase& op) {
  EXPECT_TRUE(cuda_run_to_bytes(op) == run_to_bytes(op)) << op.spec->name;
  expect_cuda_repeats(op);
}

inline void expect_cuda_near_cpu(const OpCase& op, std::optional<Tolerance> tolerance = std::nullopt) {
  const std::vector<Matrix> expected = run(op);
  const std::vector<Matrix> actual = cuda_run(op);
  for (std::size_t w = 0; w < expected.size(); ++w) {
    SCOPED_TRACE(testing::Message() << op.spec->name << ", write " << w);
    expect_close(actual[w], expected[w].numbers, tolerance);
  }
  expect_cuda_repeats(op);
}

}  // namespace spillway::ops_test
