// A kernel runs one class of op on one processor. It is made once, at start, from the op's spec, attributes and shapes,
// and holds whatever was compiled for them; running it allocates nothing.
//
// The work is a fixed grid of independent tasks that depends on shape alone, never on the number of threads: each task
// writes bytes no other task touches, so threads may take tasks in any order and the bits stay equal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "program/spec.h"

namespace spillway {

// What a kernel is chosen by. Types are those of whole operands.
struct KernelKey {
  const OpSpec* spec = nullptr;
  Attrs attrs;
  std::vector<ValueType> reads;  // an absent optional read has rows == 0
  std::vector<ValueType> writes;
  bool operator==(const KernelKey&) const = default;
};

// Addresses of the operands in the order of the op's reads and writes; null for an absent one. A write that shares a
// read's bytes has the same address. At least 64-byte aligned, except a read with a row offset of its own.
struct KernelArgs {
  std::span<const std::byte* const> reads;
  std::span<std::byte* const> writes;
  std::span<std::byte> scratch;  // of this thread, at least scratch_bytes(), 64-byte aligned
  // The task of this call, of the same reads, that left this scratch as it is; -1: its contents are undefined.
  std::int64_t last_task = -1;

  template <typename T>
  const T* read(int i) const {
    return reinterpret_cast<const T*>(reads[static_cast<std::size_t>(i)]);
  }
  template <typename T>
  T* write(int i) const {
    return reinterpret_cast<T*>(writes[static_cast<std::size_t>(i)]);
  }
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual std::int64_t tasks() const = 0;
  virtual std::int64_t scratch_bytes() const { return 0; }  // for each thread
  // Products compiled for it by the library.
  virtual std::int64_t compiled_products() const { return 0; }
  // Called from several threads at once with different tasks and scratch.
  virtual void run(std::int64_t task, const KernelArgs& args) const = 0;
};

// The CPU kernel of an op class. Throws UserError when this processor cannot run it.
std::unique_ptr<Kernel> make_cpu_kernel(const KernelKey& key);

}  // namespace spillway
