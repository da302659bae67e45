// What ops take on a device, in stretches that are started as one, as those of a step that moves nothing are.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"
#include "base/steady_clock.h"
#include "cuda/device.h"
#include "cuda/kernels.h"
#include "cuda/measuring.h"
#include "cuda/status.h"
#include "program/spec.h"

namespace spillway::cuda {
namespace {

constexpr double seconds_at_once = 0.5e-3;  // about so long takes what is timed at once
constexpr std::int64_t most_at_once = 32;
constexpr std::int64_t cold_bytes = 128 * mib;  // beyond a device's cache, of what is read and of what is written
constexpr std::int64_t alignment_bytes = 256;

bool is_index(const ValueType& type) { return type.dtype == DType::i32; }

// Of the indices among operands, or of the others.
std::int64_t bytes_of(std::span<const ValueType> types, bool of_indices) {
  std::int64_t bytes = 0;
  for (const ValueType& type : types) {
    if (is_index(type) == of_indices) bytes += round_up(type.bytes(), alignment_bytes);
  }
  return bytes;
}

// Numbers around a hundredth of either sign, in bf16 as in fp32: products of zeros take less power, and so less time.
std::vector<std::byte> numbers(std::int64_t bytes) {
  std::vector<std::byte> made(static_cast<std::size_t>(bytes));
  std::uint32_t random = 7;
  for (std::size_t i = 0; i + 1 < made.size(); i += 2) {
    random = random * 1664525U + 1013904223U;
    made[i] = static_cast<std::byte>(random >> 24U);
    made[i + 1] = static_cast<std::byte>(0x3cU | (random >> 16U & 0x80U));
  }
  return made;
}

// As many as an operand has, in range whatever they are of, and spread, since ops may add up what has the same one.
std::vector<std::int32_t> indices(const KernelKey& key, std::int64_t count) {
  std::int64_t range = count;
  for (const auto* types : {&key.reads, &key.writes}) {
    for (const ValueType& type : *types) {
      for (const std::int64_t side : {type.rows, type.cols}) {
        if (!is_index(type) && side > 1) range = std::min(range, side);
      }
    }
  }
  std::vector<std::int32_t> made;
  for (std::int64_t i = 0; i < count; ++i) made.push_back(static_cast<std::int32_t>(i % range));
  return made;
}

// Hands out its memory in turn, so that what is handed out was touched longest ago.
class InTurn {
 public:
  explicit InTurn(std::int64_t bytes)
      : bytes_(std::max(bytes, alignment_bytes)), memory_(bytes_, Taken::Where::device) {}
  std::int64_t bytes() const { return bytes_; }
  std::byte* data() const { return memory_.data(); }
  std::byte* take(std::int64_t bytes) {
    if (next_ + bytes > bytes_) next_ = 0;
    next_ += bytes;
    return memory_.data() + next_ - bytes;
  }

 private:
  std::int64_t bytes_;
  Taken memory_;
  std::int64_t next_ = 0;
};

}  // namespace

// Memory for operands. What is read is never written, and stays numbers; what an op may do in place it does so.
class OpOperands {
 public:
  OpOperands(std::span<const KernelKey> keys, std::int64_t memory_bytes, Stream stream)
      : OpOperands(most(keys, &KernelKey::reads, false), most(keys, &KernelKey::writes, false),
                   std::min(most(keys, &KernelKey::reads, true), memory_bytes / 4), memory_bytes) {
    const std::vector<std::byte> some = numbers(2 * mib);
    for (std::int64_t at = 0; at < reads_.bytes(); at += std::ssize(some)) {
      const std::int64_t bytes = std::min<std::int64_t>(std::ssize(some), reads_.bytes() - at);
      put(reads_.data() + at, some.data(), bytes, stream);
    }
  }

  bool have_room_for(const KernelKey& key) const {
    return bytes_of(key.reads, false) <= reads_.bytes() && bytes_of(key.writes, false) <= writes_.bytes() &&
           bytes_of(key.reads, true) <= indices_.bytes() && bytes_of(key.writes, true) == 0;
  }

  void put_indices(const KernelKey& key, Stream stream) {
    std::byte* at = indices_.data();
    for (const ValueType& type : key.reads) {
      if (!is_index(type) || type.rows == 0) continue;
      const std::vector<std::int32_t> made = indices(key, type.elements());
      put(at, reinterpret_cast<const std::byte*>(made.data()), type.bytes(), stream);
      at += round_up(type.bytes(), alignment_bytes);
    }
  }

  void start(const Kernel& kernel, const KernelKey& key) {
    at_reads_.clear();
    at_writes_.clear();
    std::byte* index = indices_.data();
    std::byte* read = reads_.take(bytes_of(key.reads, false));
    for (const ValueType& type : key.reads) {
      std::byte*& at = is_index(type) ? index : read;
      at_reads_.push_back(type.rows == 0 ? nullptr : at);
      at += round_up(type.bytes(), alignment_bytes);
    }
    std::byte* write = writes_.take(bytes_of(key.writes, false));
    for (const ValueType& type : key.writes) {
      at_writes_.push_back(write);
      write += round_up(type.bytes(), alignment_bytes);
    }
    for (const Share& share : key.spec->shares) {
      const auto from = static_cast<std::size_t>(share.read);
      const auto to = static_cast<std::size_t>(share.write);
      if (from < at_reads_.size() && to < at_writes_.size() && at_reads_[from] != nullptr &&
          key.reads[from].bytes() == key.writes[to].bytes()) {
        at_reads_[from] = at_writes_[to];
      }
    }
    kernel.run(0, {at_reads_, at_writes_, {}});
  }

 private:
  OpOperands(std::int64_t read_bytes, std::int64_t write_bytes, std::int64_t index_bytes, std::int64_t memory_bytes)
      : indices_(index_bytes),
        reads_(std::min(std::max(read_bytes, cold_bytes), (memory_bytes - index_bytes) / 2)),
        writes_(std::min(std::max(write_bytes, cold_bytes), (memory_bytes - index_bytes) / 2)) {}

  static std::int64_t most(std::span<const KernelKey> keys, std::vector<ValueType> KernelKey::*types, bool of_indices) {
    std::int64_t bytes = 0;
    for (const KernelKey& key : keys) bytes = std::max(bytes, bytes_of(key.*types, of_indices));
    return bytes;
  }

  static void put(std::byte* to, const std::byte* from, std::int64_t bytes, Stream stream) {
    check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, stream),
          "filling memory to measure with");
    check(cudaStreamSynchronize(stream), "filling memory to measure with");
  }

  InTurn indices_;
  InTurn reads_;
  InTurn writes_;
  std::vector<const std::byte*> at_reads_;
  std::vector<std::byte*> at_writes_;
};

// A long op alone; of others a stretch, behind another one, so that the host's part counts for nothing.
double Device::seconds_of_op(const Kernel& kernel, const KernelKey& key, OpOperands& operands) {
  const Moment begin, end;
  const auto seconds_of = [&](const auto& start) {
    begin.note(compute());
    start();
    end.note(compute());
    return begin.seconds_until(end);
  };
  operands.put_indices(key, compute());
  operands.start(kernel, key);  // loads code
  const double alone = seconds_of([&] { operands.start(kernel, key); });
  if (alone > seconds_at_once) return alone;
  const auto count = std::clamp(static_cast<std::int64_t>(seconds_at_once / alone), std::int64_t{1}, most_at_once);
  constexpr std::int64_t number = 0;
  const auto start_all = [&] {
    if (start_sequence(number)) return;
    begin_sequence(number);
    for (std::int64_t i = 0; i < count; ++i) operands.start(kernel, key);
    if (!end_sequence()) operands.start(kernel, key);  // it cannot be recorded: from the next time on each is started
  };
  start_all();
  start_all();  // is recorded
  double best = alone;
  for (int round = 0; round < 2; ++round) {
    start_all();
    best = std::min(best, seconds_of(start_all) / static_cast<double>(count));
  }
  sequences_.forget();
  return best;
}

std::vector<double> Device::measured_ops(std::span<const KernelKey> ops, std::int64_t memory_bytes, double seconds) {
  SPILLWAY_CHECK(scratch_ == nullptr, "memory of {} is reserved", facts_.name);
  make_current();
  const auto start = SteadyClock::now();
  std::vector<double> measured(ops.size(), 0);
  std::vector<std::unique_ptr<Kernel>> kernels;
  for (const KernelKey& key : ops) kernels.push_back(make_kernel(key));
  memory_bytes = std::min(memory_bytes, free_bytes() / 2);
  if (memory_bytes <= scratch_bytes_) return measured;
  const Taken scratch(scratch_bytes_, Taken::Where::device);
  OpOperands operands(ops, memory_bytes - scratch_bytes_, compute());
  scratch_ = scratch.data();
  const struct End {
    Device& device;
    ~End() {
      device.sequences_.stop_recording(device.compute());  // after a failure
      device.sequences_.forget();
      device.scratch_ = nullptr;
    }
  } end{*this};
  for (std::size_t op = 0; op < ops.size() && seconds_since(start) < seconds; ++op) {
    if (operands.have_room_for(ops[op])) measured[op] = seconds_of_op(*kernels[op], ops[op], operands);
  }
  return measured;
}

}  // namespace spillway::cuda
