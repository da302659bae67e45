// The kernels of a Program: one a class of op, made once, and for every op where its operands lie.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "device/page_pool.h"
#include "ops/kernel.h"
#include "plan/layout.h"

namespace spillway {

class ThreadPool;

// Zeroed bytes, aligned for kernels and for direct I/O, touched at once so that they count from the start.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::int64_t bytes = 0);
  std::byte* data() const { return data_.get(); }
  std::int64_t size_bytes() const { return size_bytes_; }
  std::span<std::byte> all() const { return {data_.get(), static_cast<std::size_t>(size_bytes_)}; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::int64_t size_bytes_ = 0;
  std::unique_ptr<std::byte[], Free> data_;
};

// Inputs and outputs, which live outside the pages for the whole run.
class HostValues {
 public:
  explicit HostValues(const Program& program);
  // Null for a value in pages.
  std::byte* data(ValueId id) const {
    return offsets_[index_of(id)] < 0 ? nullptr : bytes_.data() + offsets_[index_of(id)];
  }
  static std::int64_t bytes_of(const Program& program);
  // All of them, one after the other, for a device that has them in its own memory too.
  std::span<std::byte> all() const { return {bytes_.data(), static_cast<std::size_t>(end_bytes_)}; }

 private:
  std::vector<std::int64_t> offsets_;  // -1: in pages
  std::int64_t end_bytes_ = 0;
  AlignedBytes bytes_;
};

// Runs all tasks of a kernel. Each thread has an equal part of `scratch`, whole lines of the cache, of at least the
// kernel's scratch_bytes() (checked). Throws what a task throws; ends the process where one changed the floating-point
// mode.
void run_tasks(ThreadPool& threads, const Kernel& kernel, std::span<const std::byte* const> reads,
               std::span<std::byte* const> writes, std::span<std::byte> scratch);

using MakeKernel = std::function<std::unique_ptr<Kernel>(const KernelKey&)>;

// Kernels made so far; classes recur across layers, micro-batches and Programs. They are the processor's, or a
// device's: those that `make` makes.
class KernelCache {
 public:
  explicit KernelCache(MakeKernel make = {}) : make_(std::move(make)) {}
  const Kernel& get(const KernelKey& key);
  const Kernel& get_on_host(const KernelKey& key);  // the processor's, also where the others are a device's
  void make_all(const Program& program);
  std::int64_t scratch_bytes() const { return scratch_bytes_; }  // a thread needs at most this
  std::size_t size() const { return kernels_.size(); }
  std::int64_t compiled_products() const;

 private:
  using Kernels = std::vector<std::pair<KernelKey, std::unique_ptr<Kernel>>>;
  static const Kernel& get_from(Kernels& kernels, const KernelKey& key, const MakeKernel& make);

  MakeKernel make_;  // empty: they are the processor's
  Kernels kernels_;
  Kernels host_kernels_;  // beside a device's
  std::int64_t scratch_bytes_ = 0;
};

KernelKey key_of(const Program& program, const Op& op);

// Where bundles lie in a memory, by bundle: what an op finds its operands by.
using BundleData = std::vector<std::byte*>;

// The ops of one Program, ready to run.
class BoundProgram {
 public:
  // `values`: where a device has the inputs and outputs; null: they are the host's. `has_host`: ops that may run
  // anywhere may do so in the host's memory, beside those that run in a device's.
  BoundProgram(const Program& program, const ProgramLayout& layout, std::byte* values, bool has_host,
               KernelCache& kernels);

  const Program& program() const { return program_; }
  const HostValues& host() const { return host_; }
  std::byte* values() const { return values_; }  // where a device has them; null: nowhere
  // An op with its operands where they lie now. Filled anew for each op, so that it allocates once.
  struct Call {
    const Kernel* kernel = nullptr;
    std::vector<const std::byte*> reads;
    std::vector<std::byte*> writes;
  };
  void prepare(OpId op, const BundleData& data, Call& call) const;
  void prepare_on_host(OpId op, const BundleData& data, Call& call) const;
  // Parameters that the op updates, of one that may run anywhere; otherwise 0.
  std::int64_t updated_by(OpId op) const;

 private:
  // Of an operand: in a bundle or, without one, among inputs and outputs.
  struct Where {
    BundleId bundle = BundleId::none;
    std::int64_t offset_bytes = -1;  // -1: there is no operand
  };
  Where where(const ProgramLayout& layout, const Operand& operand) const;
  void find(OpId op, const BundleData& data, std::byte* values, Call& call) const;

  const Program& program_;
  HostValues host_;
  std::byte* values_;
  std::vector<const Kernel*> kernels_;       // by op
  std::vector<const Kernel*> host_kernels_;  // the same on the host, of those that may run anywhere; of others null
  std::vector<Where> operands_;              // of all ops, one after the other: what it reads, then what it writes
  std::vector<std::uint32_t> first_{0};      // by op, and one more
};

}  // namespace spillway
