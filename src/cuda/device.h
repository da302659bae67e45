// One NVIDIA device: its streams, memory and kernels.
#pragma once

#include <atomic>
#include <optional>
#include <vector>

#include "cuda/direct_io.h"
#include "cuda/driver.h"
#include "cuda/host_pages.h"
#include "cuda/launch.h"
#include "cuda/page_pool.h"
#include "cuda/products.h"
#include "cuda/sequences.h"
#include "executor/accelerator.h"

struct CUevent_st;

namespace spillway::cuda {

class OpOperands;

// What the kernels need to know of the device they are made for.
struct DeviceFacts {
  int index = 0;
  std::string name;
  int major = 0;  // of the compute capability
  int minor = 0;
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
};

class Device final : public Accelerator {
 public:
  // Throws DeviceError; see open_cuda_device.
  Device();
  ~Device() override;

  std::string describe() const override;
  std::string numeric_key() const override;
  std::int64_t memory_bytes() const override { return facts_.memory_bytes; }
  std::int64_t free_bytes() const override;
  MachineRates measured(MachineRates rates) override;
  std::vector<double> measured_ops(std::span<const KernelKey> ops, std::int64_t memory_bytes, double seconds) override;

  std::unique_ptr<Kernel> make_kernel(const KernelKey& key) override;
  void reserve(const AcceleratorMemory& memory, HostPagePool& host) override;
  void give_back() override;
  std::byte* address(std::int64_t offset) const override { return pool_->address(offset); }
  std::byte* values() const override { return values_; }
  void attach(std::int64_t address_offset, std::span<const PageId> pages, DeviceStream by) override;
  void fill(std::byte* at, std::byte value, std::int64_t bytes, DeviceStream by) override;
  void copy_up(std::byte* to, const HostBundle& from) override;
  void copy_down(const HostBundle& to, const std::byte* from) override;
  std::string why_not_direct(int descriptor) override;
  std::int64_t read_file(int descriptor, std::int64_t offset_bytes, std::byte* to, std::int64_t bytes) override;
  std::int64_t write_file(int descriptor, std::int64_t offset_bytes, const std::byte* from,
                          std::int64_t bytes) override;
  void put(std::byte* to, const std::byte* from, std::int64_t bytes) override;
  void get(std::byte* to, const std::byte* from, std::int64_t bytes) override;
  bool start_sequence(std::int64_t number) override;
  void begin_sequence(std::int64_t number) override;
  bool end_sequence() override;
  std::int64_t mark() override;
  bool is_done(std::int64_t mark) override;
  void wait(std::int64_t mark) override;

  // For kernels.
  const DeviceFacts& facts() const { return facts_; }
  const ProductLibrary& products() const { return products_; }
  Stream compute() const { return streams_[0]; }
  // Memory that belongs to an op while it runs: asked for when kernels are made, there once memory is reserved.
  void need_scratch(std::int64_t bytes);
  std::byte* scratch() const;
  // On the compute stream.
  void clear(void* at, std::int64_t bytes) const;
  void copy_within(void* to, const void* from, std::int64_t bytes) const;
  void bring(void* to, const void* from, std::int64_t bytes);  // from the host; `from` may change afterwards

 private:
  Stream stream(DeviceStream which) const { return streams_[static_cast<int>(which)]; }
  void make_current() const;  // for the calling thread
  double seconds_of_op(const Kernel& kernel, const KernelKey& key, OpOperands& operands);
  double seconds_of_mapping();
  double seconds_of_product(DType dtype);
  double seconds_of_copy(std::byte* to, const std::byte* from, std::int64_t bytes);
  LinkRate link_both_ways(std::byte* here, std::byte* there);

  DeviceFacts facts_;
  Driver driver_;
  ProductLibrary products_;
  Stream streams_[4] = {};
  std::vector<CUevent_st*> events_;  // of marks, in turn
  std::int64_t marks_ = 0;
  Sequences sequences_;
  std::optional<DevicePagePool> pool_;
  std::optional<HostPages> host_;
  std::optional<DirectIo> direct_io_;
  std::byte* values_ = nullptr;
  std::byte* scratch_ = nullptr;
  std::int64_t scratch_bytes_ = product_workspace_bytes;
  LinkRate link_;  // as measured
};

}  // namespace spillway::cuda
