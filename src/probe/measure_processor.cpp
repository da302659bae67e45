#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include "base/bytes.h"
#include "base/steady_clock.h"
#include "device/page_pool.h"
#include "device/thread_pool.h"
#include "ops/adamw/adamw.h"
#include "ops/matmul/matmul.h"
#include "probe/buffer.h"
#include "probe/op_timer.h"
#include "probe/probe.h"

namespace spillway {
namespace {

constexpr double most_product_seconds = 0.1;

double median_of(int rounds, const std::function<double()>& once) {
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) times.push_back(once());
  return median(std::move(times));
}

// Copies, each thread in its part of the buffer. Bytes read and written a second.
double memory_rate(int threads, const ProbeBuffer& buffer) {
  ThreadPool pool(threads);
  const std::int64_t half = buffer.size_bytes() / 2;
  const std::int64_t part = half / threads / 4096 * 4096;
  const auto copy = [&] {
    const auto start = SteadyClock::now();
    pool.run(threads, [&](int, std::int64_t task) {
      std::memcpy(buffer.data() + half + task * part, buffer.data() + task * part, static_cast<std::size_t>(part));
    });
    return seconds_since(start);
  };
  copy();
  return 2.0 * static_cast<double>(part * threads) / median_of(5, copy);
}

double op_start(int threads) {
  ThreadPool pool(threads);
  std::atomic<std::int64_t> sum{0};
  return median_of(64, [&] {
    const auto start = SteadyClock::now();
    pool.run(threads, [&](int, std::int64_t task) { sum.fetch_add(task, std::memory_order_relaxed); });
    return seconds_since(start);
  });
}

// Where a page lay is forgotten by every thread that is at work, and in a run those are the others that compute.
double attach_time(std::int64_t page_bytes, int threads) {
  constexpr std::int64_t pages = 8;
  PagePoolOptions options;
  options.page_bytes = page_bytes;
  options.page_count = pages;
  options.address_bytes = 2 * pages * page_bytes;
  HostPagePool pool(options);
  std::vector<std::jthread> others;  // which their end stops
  for (int i = 0; i < std::max(threads - 1, 1); ++i) {
    others.emplace_back([](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
      }
    });
  }
  std::int64_t turn = 0;
  return median_of(32, [&] {
    ++turn;
    const auto start = SteadyClock::now();
    for (std::int64_t p = 0; p < pages; ++p) {
      pool.attach(static_cast<PageId>(p), (p + turn % 2 * pages) * page_bytes);
    }
    return seconds_since(start) / pages;
  });
}

// From one thread's saying that something is done to the going on of another that slept for it.
double wake_time() {
  constexpr int rounds = 32;
  std::atomic<int> turn{0};
  std::atomic<std::int64_t> woken{0};
  const auto now = [] { return SteadyClock::now().time_since_epoch().count(); };
  std::thread sleeper([&] {
    for (int i = 1; i < 2 * rounds; i += 2) {
      for (int seen = turn.load(); seen < i; seen = turn.load()) turn.wait(seen);
      woken = now();
      turn = i + 1;
    }
  });
  std::vector<double> times;
  for (int i = 1; i < 2 * rounds; i += 2) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    const std::int64_t start = now();
    turn = i;
    turn.notify_one();
    while (turn.load() == i) std::this_thread::yield();
    times.push_back(std::chrono::duration<double>(SteadyClock::duration(woken.load() - start)).count());
  }
  sleeper.join();
  return median(std::move(times));
}

// An update of a million elements, as most pieces have.
KernelKey update_key(DType dtype, bool packed) {
  constexpr std::int64_t side = 1024;
  const ValueType weight{dtype, side, side};
  const ValueType low{DType::u16, dtype == DType::bf16 ? side : 0, side};
  const ValueType moment = packed ? packed_moment_type(side, side) : ValueType{DType::f32, side, side};
  KernelKey key{&adamw_spec,
                {{"row_begin", std::int64_t{0}}, {"decay", std::int64_t{1}}},
                {weight, moment, moment, low, weight, {DType::f32, 1, 1}, adamw_scalars_type},
                {}};
  key.writes = adamw_spec.infer(key.attrs, key.reads);
  return key;
}

}  // namespace

double updates_now(DType dtype, bool packed, int threads, std::int64_t memory_bytes, double seconds) {
  const KernelKey key = update_key(dtype, packed);
  const std::unique_ptr<Kernel> kernel = make_cpu_kernel(key);
  OpTimer timer(threads, memory_bytes, kernel->scratch_bytes());
  return adamw_spec.cost(key.attrs, key.reads, key.writes).bytes / timer.seconds(key, *kernel, seconds);
}

double products_now(DType dtype, int threads, double seconds) {
  const KernelKey key = product_key(dtype);
  const std::unique_ptr<Kernel> kernel = make_cpu_kernel(key);
  OpTimer timer(threads, probe_product_bytes, kernel->scratch_bytes());
  return product_flops / timer.seconds(key, *kernel, seconds);
}

void measure_processor(std::int64_t page_bytes, const ProbeLimits& limits, MachineRates& rates) {
  const int threads = static_cast<int>(rates.threads);
  const double share = std::min(limits.seconds / 8, most_product_seconds);
  rates.f32_flops_per_second = products_now(DType::f32, threads, share);
  rates.bf16_flops_per_second =
      matmul_has_bf16() ? products_now(DType::bf16, threads, share) : rates.f32_flops_per_second;
  rates.memory_bytes_per_second.clear();
  {  // given back before others are taken
    const ProbeBuffer buffer(std::clamp<std::int64_t>(limits.memory_bytes, 4 * mib, 256 * mib));
    for (int n = 1; n <= threads; n = n < threads ? std::min(2 * n, threads) : n + 1) {
      rates.memory_bytes_per_second.push_back(memory_rate(n, buffer));
    }
  }
  rates.op_seconds = op_start(threads);
  if (8 * page_bytes <= limits.memory_bytes) rates.attach_seconds = attach_time(page_bytes, threads);
  rates.wake_seconds = wake_time();
  rates.memory_bytes = rates.identity.memory_bytes;
  rates.source = RateSource::measured;
}

}  // namespace spillway
