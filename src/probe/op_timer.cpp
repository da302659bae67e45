#include "probe/op_timer.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/steady_clock.h"
#include "ops/linear/linear.h"
#include "ops/matmul/matmul.h"

namespace spillway {
namespace {

constexpr std::int64_t index_bytes = mib;

bool is_index(const ValueType& type) { return type.dtype == DType::i32 || type.dtype == DType::i64; }

std::int64_t operand_bytes(std::span<const ValueType> types) {
  std::int64_t bytes = 0;
  for (const ValueType& type : types) bytes += is_index(type) ? 0 : round_up(type.bytes(), 4096);
  return bytes;
}

}  // namespace

KernelKey product_key(DType dtype) {
  return {&linear_spec,
          {{"weight_out_in", std::int64_t{1}}},
          {{dtype, 512, 512}, {dtype, 1024, 512}, {DType::f32, 0, 0}},
          {{dtype, 512, 1024}}};
}

double median(std::vector<double> times) {
  const auto middle = times.begin() + (std::ssize(times) - 1) / 2;
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

OpTimer::OpTimer(int threads, std::int64_t memory_bytes, std::int64_t scratch_bytes, bool huge_pages)
    : threads_(threads, [](int) { prepare_matmul_thread(); }),
      scratch_(round_up(scratch_bytes, 4096) * threads),
      read_buffer_(memory_bytes / 2, huge_pages),
      write_buffer_(memory_bytes / 2, huge_pages),
      indices_(index_bytes),
      reads_(read_buffer_),
      writes_(write_buffer_) {}

bool OpTimer::has_room(const KernelKey& key) const {
  const auto fits = [](const ValueType& type) { return !is_index(type) || type.bytes() <= index_bytes; };
  return operand_bytes(key.reads) <= read_buffer_.size_bytes() &&
         operand_bytes(key.writes) <= write_buffer_.size_bytes() &&
         std::all_of(key.reads.begin(), key.reads.end(), fits);
}

double OpTimer::run_once(const KernelKey& key, const Kernel& kernel) {
  std::vector<const std::byte*> reads;
  std::vector<std::byte*> writes;
  std::byte* const read = reads_.take(operand_bytes(key.reads));
  std::byte* at = read;
  for (const ValueType& type : key.reads) {
    reads.push_back(type.rows == 0 ? nullptr : is_index(type) ? indices_.data() : at);
    if (!is_index(type)) at += round_up(type.bytes(), 4096);
  }
  at = writes_.take(operand_bytes(key.writes));
  for (const ValueType& type : key.writes) {
    writes.push_back(at);
    at += round_up(type.bytes(), 4096);
  }
  bool in_place = false;
  for (const Share& share : key.spec->shares) {  // in place, as the layout does where it may
    const auto from = static_cast<std::size_t>(share.read);
    const auto to = static_cast<std::size_t>(share.write);
    if (from < reads.size() && to < writes.size() && reads[from] != nullptr &&
        key.reads[from].bytes() == key.writes[to].bytes()) {
      writes[to] = const_cast<std::byte*>(reads[from]);
      in_place = true;
    }
  }
  const auto start = SteadyClock::now();
  run_tasks(threads_, kernel, reads, writes, scratch_.all());
  const double seconds = seconds_since(start);
  if (in_place) fill_with_numbers(read, operand_bytes(key.reads));  // results may be no numbers as another type
  return seconds;
}

double OpTimer::seconds(const KernelKey& key, const Kernel& kernel, double seconds) {
  run_once(key, kernel);
  std::vector<double> times;
  const auto start = SteadyClock::now();
  do {
    times.push_back(run_once(key, kernel));
  } while (seconds_since(start) < seconds);
  return median(std::move(times));
}

}  // namespace spillway
