// A processor with a memory of its own, as the executor uses it: pages at addresses, copies over its link, and ops that
// are started now and done later. It decides nothing.
//
// Ops run on one stream in the order in which they are started, copies up and copies down each on one of their own,
// beside it, and what is done for moves from disk on a fourth. Nothing orders streams: the plan's waits do. Every call
// throws DeviceError when the device fails; after that only the destructor is of use.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/page_pool.h"
#include "machine/rates.h"
#include "ops/kernel.h"

namespace spillway {

// Pages of an accelerator are of this size, or multiples of it.
inline constexpr std::int64_t accelerator_page_bytes = std::int64_t{2} << 20;

enum class DeviceStream : std::uint8_t { compute, up, down, disk };

// What is reserved before the first run.
struct AcceleratorMemory {
  std::int64_t page_bytes = 0;
  std::int64_t page_count = 0;
  std::int64_t address_bytes = 0;
  std::int64_t value_bytes = 0;  // inputs and outputs, beside the pages
};

// A bundle in pages of the host: its bytes lie at `data`, on these pages in order.
struct HostBundle {
  std::byte* data = nullptr;
  std::span<const PageId> pages;
  std::int64_t bytes = 0;
};

class Accelerator {
 public:
  virtual ~Accelerator() = default;

  virtual std::string describe() const = 0;     // for people: its name, memory and link
  virtual std::string numeric_key() const = 0;  // what its bits depend on, beside the Program
  virtual std::int64_t memory_bytes() const = 0;
  virtual std::int64_t free_bytes() const = 0;
  // Rates of products, of its memory and of its link, measured now in a fraction of a second. The rest as in `rates`.
  virtual MachineRates measured(MachineRates rates) = 0;
  // Seconds of each of these ops where it is started behind others, measured now, in this order and until `seconds` are
  // over, with operands in at most `memory_bytes` of its memory, of which nothing is reserved; 0: not measured.
  virtual std::vector<double> measured_ops(std::span<const KernelKey> ops, std::int64_t memory_bytes,
                                           double seconds) = 0;

  // A kernel whose one task starts the op on the compute stream. The device outlives it.
  virtual std::unique_ptr<Kernel> make_kernel(const KernelKey& key) = 0;

  // Reserves everything, after the kernels are made. `host` outlives the device's use: its pages become those that
  // copies go to and come from without a detour. Throws DoesNotFit or UserError.
  virtual void reserve(const AcceleratorMemory& memory, HostPagePool& host) = 0;
  // Gives all of it back.
  virtual void give_back() = 0;

  virtual std::byte* address(std::int64_t offset) const = 0;  // in the range of pages
  virtual std::byte* values() const = 0;                      // value_bytes
  // A stay begins on these pages, at this place of the range, before work that uses it is started on `by`. What it
  // finds there is nothing in particular.
  virtual void attach(std::int64_t address_offset, std::span<const PageId> pages, DeviceStream by) = 0;
  // Of the disk's stream it is done when this returns.
  virtual void fill(std::byte* at, std::byte value, std::int64_t bytes, DeviceStream by) = 0;

  // These return when it is done. One thread a direction.
  virtual void copy_up(std::byte* to, const HostBundle& from) = 0;
  virtual void copy_down(const HostBundle& to, const std::byte* from) = 0;
  // A path of its own between its pages and files like this open one, past the host's memory, opened when it is first
  // asked for. Why there is none, in words that go on from "there is no direct path to the disk: "; empty: there is
  // one.
  virtual std::string why_not_direct(int descriptor) = 0;
  // Of an open file, until give_back; return when it is done, with the bytes that were moved, 0 at the end of the file,
  // or -errno. Any threads, for different places.
  virtual std::int64_t read_file(int descriptor, std::int64_t offset_bytes, std::byte* to, std::int64_t bytes) = 0;
  virtual std::int64_t write_file(int descriptor, std::int64_t offset_bytes, const std::byte* from,
                                  std::int64_t bytes) = 0;
  // Between runs, of any memory of the host's; in order with the ops that were started.
  virtual void put(std::byte* to, const std::byte* from, std::int64_t bytes) = 0;
  virtual void get(std::byte* to, const std::byte* from, std::int64_t bytes) = 0;

  // A sequence: ops that are the same, with the same operands, whenever it has this number. It may be recorded when it
  // is started, and started as one after that. Ops that are started from begin_sequence to end_sequence are part of it,
  // and nothing else is started meanwhile; they begin when it ends, or before.
  virtual bool start_sequence(std::int64_t number) = 0;  // false: it was not recorded
  virtual void begin_sequence(std::int64_t number) = 0;
  virtual bool end_sequence() = 0;  // false: it could not be recorded, and none of its ops was started

  // Of the compute stream: a mark is done when all that was started before it is. At most most_marks are open at a
  // time, and they are done in order.
  static constexpr std::int64_t most_marks = 64;
  virtual std::int64_t mark() = 0;
  virtual bool is_done(std::int64_t mark) = 0;
  virtual void wait(std::int64_t mark) = 0;
};

}  // namespace spillway
