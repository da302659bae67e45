// Runs one op by itself, away from planner and executor: on guarded, poisoned buffers, with any number of threads and
// any order of tasks; compares with references, and references with finite differences.
//
//   OpCase c{&add_spec, {}, {random_matrix(DType::bf16, 37, 50, rng), random_matrix(DType::bf16, 37, 50, rng)}};
//   expect_close(run(c)[0], reference::add(c.reads[0].numbers, c.reads[1].numbers));
//   expect_bits_do_not_depend_on_schedule(c);
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "ops/kernel.h"

namespace spillway::ops_test {

// A matrix with the numbers it holds, each exactly a value of its dtype (f32, bf16, i32, u16 or f64).
struct Matrix {
  ValueType type;
  std::vector<double> numbers;
};

inline double rounded(DType dtype, double number) {
  if (dtype == DType::f32) return static_cast<float>(number);
  if (dtype == DType::bf16) return widen(round_bf16(static_cast<float>(number)));
  return number;
}

// The numbers are rounded to the dtype.
inline Matrix matrix(const ValueType& type, std::vector<double> numbers) {
  SPILLWAY_CHECK(static_cast<std::int64_t>(numbers.size()) == type.elements(), "{} numbers for {} elements",
                 numbers.size(), type.elements());
  for (double& number : numbers) number = rounded(type.dtype, number);
  return {type, std::move(numbers)};
}

// Ids or positions.
inline Matrix column(const std::vector<std::int32_t>& numbers) {
  return matrix({DType::i32, static_cast<std::int64_t>(numbers.size()), 1}, {numbers.begin(), numbers.end()});
}

inline std::vector<float> floats(const Matrix& matrix) { return {matrix.numbers.begin(), matrix.numbers.end()}; }

inline Matrix absent() { return {{DType::f32, 0, 1}, {}}; }

using Rng = std::mt19937_64;

// A generator with a new seed each run, which is printed with every failure while it lives.
class Seeded {
 public:
  Seeded() : seed_(std::random_device{}()), trace_(__FILE__, __LINE__, fmt::format("seed {}", seed_)), rng(seed_) {}

 private:
  std::uint64_t seed_;
  testing::ScopedTrace trace_;

 public:
  Rng rng;
};

// Of mean 0 and deviation 1, near to normal within 3.5: the sum of the four quarters of one draw. The library's normal
// numbers take longer than what is tested with them.
inline double random_number(Rng& rng) {
  const std::uint64_t bits = rng();
  double sum = 0;
  for (int quarter = 0; quarter < 4; ++quarter) sum += static_cast<double>((bits >> (16 * quarter)) & 0xffff);
  constexpr double mean = 2 * 65535.0;
  constexpr double deviation = 37837.2;  // the root of 4 x (65536^2 - 1) / 12
  return (sum - mean) / deviation;
}

inline std::vector<double> random_numbers(std::int64_t count, Rng& rng, double deviation = 1, double mean = 0) {
  std::vector<double> numbers(static_cast<std::size_t>(count));
  for (double& number : numbers) number = mean + deviation * random_number(rng);
  return numbers;
}

inline Matrix random_matrix(DType dtype, std::int64_t rows, std::int64_t cols, Rng& rng, double deviation = 1,
                            double mean = 0) {
  return matrix({dtype, rows, cols}, random_numbers(rows * cols, rng, deviation, mean));
}

// Bytes at a 64-byte boundary between two guards; poisoned with NaN (0xff bytes are NaN in every float type). Their
// place in a page follows from `shift_bytes`.
class Buffer {
 public:
  explicit Buffer(std::int64_t bytes, std::int64_t shift_bytes = 0)
      : bytes_(bytes),
        guard_(256 + shift_bytes),
        storage_(static_cast<std::byte*>(
            ::operator new (static_cast<std::size_t>(round_up_64(bytes) + 2 * guard_), std::align_val_t{4096}))) {
    std::memset(storage_.get(), 0xff, static_cast<std::size_t>(bytes + guard_));
    std::memset(data() + bytes_, 0xa5, static_cast<std::size_t>(guard_));
    std::memset(storage_.get(), 0xa5, static_cast<std::size_t>(guard_));
  }

  std::byte* data() const { return storage_.get() + guard_; }
  std::int64_t bytes() const { return bytes_; }
  std::vector<std::byte> contents() const { return {data(), data() + bytes_}; }

  bool guards_hold() const {
    const auto held = [](std::byte b) { return b == std::byte{0xa5}; };
    return std::all_of(storage_.get(), data(), held) && std::all_of(data() + bytes_, data() + bytes_ + guard_, held);
  }

 private:
  static std::int64_t round_up_64(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }
  struct Free {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{4096}); }
  };
  std::int64_t bytes_;
  std::int64_t guard_;
  std::unique_ptr<std::byte, Free> storage_;
};

template <typename T>
void put_as(std::byte* to, const std::vector<double>& numbers) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto value = static_cast<T>(numbers[i]);
    std::memcpy(to + i * sizeof(T), &value, sizeof(T));
  }
}

template <typename T>
std::vector<double> numbers_as(const std::byte* from, std::int64_t count) {
  std::vector<double> numbers(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    numbers[i] = static_cast<double>(value);
  }
  return numbers;
}

inline void put(std::byte* to, const Matrix& from) {
  switch (from.type.dtype) {
    case DType::f32: return put_as<float>(to, from.numbers);
    case DType::f64: return put_as<double>(to, from.numbers);
    case DType::i32: return put_as<std::int32_t>(to, from.numbers);
    case DType::u16: return put_as<std::uint16_t>(to, from.numbers);
    case DType::u8: return put_as<std::uint8_t>(to, from.numbers);
    case DType::bf16: break;
    default: SPILLWAY_CHECK(false, "{} in a test matrix", name_of(from.type.dtype));
  }
  std::vector<double> codes = from.numbers;
  for (double& number : codes) number = round_bf16(static_cast<float>(number));
  put_as<bf16_t>(to, codes);
}

inline Matrix get(const std::byte* from, const ValueType& type) {
  switch (type.dtype) {
    case DType::f32: return {type, numbers_as<float>(from, type.elements())};
    case DType::f64: return {type, numbers_as<double>(from, type.elements())};
    case DType::i32: return {type, numbers_as<std::int32_t>(from, type.elements())};
    case DType::u16: return {type, numbers_as<std::uint16_t>(from, type.elements())};
    case DType::u8: return {type, numbers_as<std::uint8_t>(from, type.elements())};
    case DType::bf16: break;
    default: SPILLWAY_CHECK(false, "{} in a test matrix", name_of(type.dtype));
  }
  Matrix out{type, numbers_as<bf16_t>(from, type.elements())};
  for (double& number : out.numbers) number = widen(static_cast<bf16_t>(number));
  return out;
}

using Factory = std::function<std::unique_ptr<Kernel>(const KernelKey&)>;

// One op and what it reads. An absent optional read is absent().
struct OpCase {
  const OpSpec* spec = nullptr;
  Attrs attrs;
  std::vector<Matrix> reads;
  Factory make = make_cpu_kernel;
};

inline KernelKey key_of(const OpCase& op) {
  KernelKey key{op.spec, op.attrs, {}, {}};
  for (const Matrix& read : op.reads) key.reads.push_back(read.type);
  key.writes = op.spec->infer(op.attrs, key.reads);
  return key;
}

struct Schedule {
  int threads = 1;
  std::uint64_t order_seed = 0;    // 0: tasks ascending; else shuffled
  std::vector<Share> shares = {};  // writes that take the bytes of a read
  std::int64_t shift_bytes = 0;    // every buffer starts this much further on; a multiple of 64
};

// Runs every task, threads taking the next one of the order as they come free. Each has its own poisoned scratch.
inline void run_tasks(const Kernel& kernel, std::span<const std::byte* const> reads, std::span<std::byte* const> writes,
                      const Schedule& schedule) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(kernel.tasks()));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  if (schedule.order_seed != 0) std::shuffle(order.begin(), order.end(), Rng(schedule.order_seed));
  std::atomic<std::size_t> next{0};
  std::atomic<int> broken_guards{0};
  const auto work = [&] {
    const Buffer scratch(kernel.scratch_bytes(), schedule.shift_bytes);
    KernelArgs args{reads, writes, {scratch.data(), static_cast<std::size_t>(scratch.bytes())}};
    for (std::size_t i = next++; i < order.size(); i = next++) {
      kernel.run(order[i], args);
      args.last_task = order[i];
    }
    if (!scratch.guards_hold()) ++broken_guards;
  };
  std::vector<std::jthread> others;
  for (int t = 1; t < schedule.threads; ++t) others.emplace_back(work);
  work();
  others.clear();
  EXPECT_EQ(broken_guards, 0) << "a task wrote beside its scratch";
}

// The bytes of each write. Expects that nothing is written beside the writes and that reads stay as they were.
inline std::vector<std::vector<std::byte>> run_to_bytes(const OpCase& op, const Schedule& schedule = {}) {
  const KernelKey key = key_of(op);
  const std::unique_ptr<Kernel> kernel = op.make(key);
  std::vector<Buffer> buffers;
  std::vector<const std::byte*> reads;
  for (const Matrix& read : op.reads) {
    buffers.emplace_back(read.type.bytes(), schedule.shift_bytes);
    put(buffers.back().data(), read);
    reads.push_back(read.type.rows == 0 ? nullptr : buffers.back().data());
  }
  std::vector<std::size_t> place;
  for (std::size_t w = 0; w < key.writes.size(); ++w) {
    const auto shared = std::find_if(schedule.shares.begin(), schedule.shares.end(),
                                     [&](const Share& share) { return static_cast<std::size_t>(share.write) == w; });
    place.push_back(shared != schedule.shares.end() ? static_cast<std::size_t>(shared->read) : buffers.size());
    if (shared == schedule.shares.end()) buffers.emplace_back(key.writes[w].bytes(), schedule.shift_bytes);
  }
  std::vector<std::byte*> writes;
  for (const std::size_t b : place) writes.push_back(buffers[b].data());
  std::vector<std::vector<std::byte>> before;
  for (const Buffer& buffer : buffers) before.push_back(buffer.contents());

  run_tasks(*kernel, reads, writes, schedule);

  for (std::size_t b = 0; b < buffers.size(); ++b) {
    EXPECT_TRUE(buffers[b].guards_hold()) << op.spec->name << " wrote beside operand " << b;
    if (b < op.reads.size() && std::find(place.begin(), place.end(), b) == place.end()) {
      EXPECT_EQ(buffers[b].contents(), before[b]) << op.spec->name << " changed read " << b;
    }
  }
  std::vector<std::vector<std::byte>> out;
  for (const std::size_t b : place) out.push_back(buffers[b].contents());
  return out;
}

inline std::vector<Matrix> run(const OpCase& op, const Schedule& schedule = {}) {
  const KernelKey key = key_of(op);
  const std::vector<std::vector<std::byte>> bytes = run_to_bytes(op, schedule);
  std::vector<Matrix> out;
  for (std::size_t w = 0; w < bytes.size(); ++w) out.push_back(get(bytes[w].data(), key.writes[w]));
  return out;
}

// The same bits for 1 to 3 threads, shuffled tasks and every permitted sharing.
inline void expect_bits_do_not_depend_on_schedule(const OpCase& op) {
  const auto expected = run_to_bytes(op);
  for (int threads = 1; threads <= 3; ++threads) {
    for (const std::uint64_t seed : {0, 1, 2}) {
      EXPECT_TRUE(run_to_bytes(op, {threads, seed, {}}) == expected)
          << op.spec->name << " with " << threads << " threads, order " << seed;
    }
  }
  for (const Share& share : op.spec->shares) {
    if (op.reads[static_cast<std::size_t>(share.read)].type.rows == 0) continue;
    EXPECT_TRUE(run_to_bytes(op, {2, 3, {share}}) == expected)
        << op.spec->name << ": write " << share.write << " in the place of read " << share.read;
  }
}

inline double largest_of(const std::vector<double>& numbers) {
  double largest = 0;
  for (const double number : numbers) largest = std::max(largest, std::abs(number));
  return largest;
}

// |number - expected| <= relative * |expected| + absolute * largest, for every number; NaN fails. The largest is that
// of all |expected| and, where they are sums whose terms may cancel, of |terms|. By default what one rounding to the
// dtype and some fp32 arithmetic allow.
struct Tolerance {
  double relative;
  double absolute;
};

inline Tolerance tolerance_of(DType dtype) {
  return dtype == DType::bf16 ? Tolerance{1.0 / 256, 1e-5} : Tolerance{2e-6, 2e-6};
}

inline void expect_close(const Matrix& actual, const std::vector<double>& expected,
                         std::optional<Tolerance> given = std::nullopt, double largest_term = 0) {
  const Tolerance tolerance = given.value_or(tolerance_of(actual.type.dtype));
  ASSERT_EQ(actual.numbers.size(), expected.size());
  const double largest = std::max(largest_term, largest_of(expected));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double allowed = tolerance.relative * std::abs(expected[i]) + tolerance.absolute * largest;
    ASSERT_LE(std::abs(actual.numbers[i] - expected[i]), allowed)
        << "element " << i << " is " << actual.numbers[i] << ", expected " << expected[i];
    ASSERT_FALSE(std::isnan(actual.numbers[i])) << "element " << i;
  }
}

// The gradient of sum(dy * f(at)) with respect to `at`, by central differences in double.
inline std::vector<double> finite_difference(const std::function<std::vector<double>(const std::vector<double>&)>& f,
                                             const std::vector<double>& at, const std::vector<double>& dy) {
  constexpr double step = 1e-5;
  const auto objective = [&](const std::vector<double>& x) {
    const std::vector<double> y = f(x);
    return std::inner_product(y.begin(), y.end(), dy.begin(), 0.0);
  };
  std::vector<double> gradient;
  std::vector<double> x = at;
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = at[i] + step;
    const double up = objective(x);
    x[i] = at[i] - step;
    const double down = objective(x);
    x[i] = at[i];
    gradient.push_back((up - down) / (2 * step));
  }
  return gradient;
}

// A reference gradient against finite differences of the reference forward.
inline void expect_gradient(const std::vector<double>& actual,
                            const std::function<std::vector<double>(const std::vector<double>&)>& f,
                            const std::vector<double>& at, const std::vector<double>& dy) {
  const Matrix as_matrix{{DType::f64, static_cast<std::int64_t>(actual.size()), 1}, actual};
  expect_close(as_matrix, finite_difference(f, at, dy), Tolerance{1e-6, 1e-6});
}

// Columns summed over rows: gradients of weights from partials.
inline std::vector<double> column_totals(const Matrix& partials) {
  std::vector<double> totals(static_cast<std::size_t>(partials.type.cols), 0.0);
  for (std::size_t i = 0; i < partials.numbers.size(); ++i) totals[i % totals.size()] += partials.numbers[i];
  return totals;
}

}  // namespace spillway::ops_test
