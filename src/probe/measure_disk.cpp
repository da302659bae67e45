#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <thread>

#include "base/bytes.h"
#include "base/error.h"
#include "base/steady_clock.h"
#include "device/page_pool.h"
#include "ops/matmul/matmul.h"
#include "probe/buffer.h"
#include "probe/op_timer.h"
#include "probe/probe.h"
#include "store/io.h"
#include "store/slot_file.h"

namespace spillway {
namespace {

constexpr std::array<std::int64_t, 3> depths{8, 16, 32};
constexpr double enough = 0.9;  // of the best rate: for more it is not worth it that a read waits for others before it

// A run's pages are many: what moves was touched long ago. A virtual disk may copy, and copies between its own memory
// and a few buffers, which stay in a cache, a third faster.
constexpr std::int64_t most_memory_bytes = 256 * mib;

// Passes over slots of one file, as many in flight as the executor has, and over memory that is longer than that.
class DiskTimer {
 public:
  DiskTimer(const std::filesystem::path& directory, std::int64_t block_bytes, std::int64_t blocks,
            std::int64_t in_flight, std::int64_t memory_bytes)
      : engine_(make_io_engine({.depth = static_cast<int>(in_flight)})),
        store_({{directory}, block_bytes, blocks}, *engine_),
        block_bytes_(block_bytes),
        in_flight_(in_flight),
        memory_(std::max(in_flight * block_bytes, memory_bytes), block_bytes >= huge_page_bytes),
        buffers_(memory_) {
    for (std::int64_t i = 0; i < blocks; ++i) slots_.push_back(store_.allocate());
  }

  using KindOf = std::function<IoRequest::Kind(std::size_t)>;

  // Bytes a second; `kind_of` says what to do with the n-th block. Goes on until `least` blocks have begun and
  // `seconds` are over.
  double pass(const KindOf& kind_of, std::int64_t least, double seconds, std::int64_t in_flight) {
    const auto start = SteadyClock::now();
    std::vector<std::int64_t> idle;
    for (std::int64_t i = 0; i < in_flight; ++i) idle.push_back(i);
    std::vector<std::size_t> block_in(idle.size());
    std::vector<IoCompletion> done;
    std::int64_t begun = 0;
    std::int64_t finished = 0;
    const auto goes_on = [&] { return begun < least || seconds_since(start) < seconds; };
    while (goes_on() || finished < begun) {
      for (; !idle.empty() && goes_on(); ++begun, idle.pop_back()) {
        const auto block = static_cast<std::size_t>(begun);
        const SlotStore::Location at = store_.location(slots_[block % slots_.size()]);
        block_in[static_cast<std::size_t>(idle.back())] = block;
        engine_->submit({kind_of(block), at.file, at.offset_bytes, buffers_.take(block_bytes_), block_bytes_,
                         static_cast<std::uint64_t>(idle.back())});
      }
      if (finished == begun) continue;
      done.clear();
      engine_->wait(done);
      for (const IoCompletion& completion : done) {
        const std::size_t block = block_in[completion.tag];
        if (completion.failed()) throw store_.failure(slots_[block % slots_.size()], kind_of(block), completion);
        idle.push_back(static_cast<std::int64_t>(completion.tag));
        ++finished;
      }
    }
    return static_cast<double>(block_bytes_ * finished) / seconds_since(start);
  }

  // Every block has something to read afterwards.
  void write_all() {
    pass([](std::size_t) { return IoRequest::Kind::write; }, std::ssize(slots_), 0, in_flight_);
  }

  std::int64_t in_flight() const { return in_flight_; }

 private:
  std::unique_ptr<IoEngine> engine_;
  SlotStore store_;
  std::int64_t block_bytes_;
  std::int64_t in_flight_;
  ProbeBuffer memory_;  // as a run's pages: of small ones a request has many, and is slower
  Rotation buffers_;
  std::vector<SlotId> slots_;
};

IoRequest::Kind always_read(std::size_t) { return IoRequest::Kind::read; }
IoRequest::Kind always_write(std::size_t) { return IoRequest::Kind::write; }
IoRequest::Kind alternate(std::size_t n) { return n % 2 == 0 ? IoRequest::Kind::read : IoRequest::Kind::write; }

std::int64_t in_flight_of(std::int64_t block_bytes, const ProbeLimits& limits, std::int64_t most) {
  return std::clamp<std::int64_t>(limits.memory_bytes / block_bytes, 1, most);
}

// Of a file that a second of the time allowed can fill on a fast disk.
std::int64_t blocks_of(std::int64_t block_bytes, const ProbeLimits& limits, std::int64_t in_flight) {
  const std::int64_t file_bytes = limits.seconds > 4 ? gib : 128 * mib;
  return std::clamp<std::int64_t>(file_bytes / block_bytes, 2 * in_flight, 4096);
}

DiskTimer make_timer(const std::filesystem::path& directory, std::int64_t block_bytes, const ProbeLimits& limits,
                     std::int64_t most) {
  const std::int64_t in_flight = in_flight_of(block_bytes, limits, most);
  const std::int64_t memory_bytes = std::min(limits.memory_bytes, most_memory_bytes);
  return {directory, block_bytes, blocks_of(block_bytes, limits, in_flight), in_flight, memory_bytes};
}

// The fewest requests in flight that reach about the best rate, since what computing waits for stands behind those
// under way, and some virtual disks tell the end of none of them before all have ended. In turns, so that a slow moment
// is not one depth's.
std::int64_t best_depth(DiskTimer& timer, double seconds) {
  constexpr int rounds = 2;
  std::array<double, depths.size()> shares{};  // of the best rate of a round, the most of all rounds
  for (int round = 0; round < rounds; ++round) {
    std::array<double, depths.size()> rates{};
    for (std::size_t i = 0; i < depths.size(); ++i) {
      const std::int64_t depth = std::min(depths[i], timer.in_flight());
      rates[i] = timer.pass(alternate, 2 * depth, seconds / (rounds * depths.size()), depth);
    }
    const double best = *std::max_element(rates.begin(), rates.end());
    for (std::size_t i = 0; i < depths.size(); ++i) shares[i] = std::max(shares[i], rates[i] / best);
  }
  return std::min(fewest_in_flight(depths, shares), timer.in_flight());
}

}  // namespace

std::int64_t fewest_in_flight(std::span<const std::int64_t> counts, std::span<const double> rates) {
  const double best = *std::max_element(rates.begin(), rates.end());
  const auto first = std::find_if(rates.begin(), rates.end(), [&](double rate) { return rate >= enough * best; });
  return counts[static_cast<std::size_t>(first - rates.begin())];
}

double BesideEachOther::compute_seconds_per_byte() const { return (1 - product_alone / product_beside) / disk_beside; }

BesideEachOther usual_of(std::vector<BesideEachOther> rounds) {
  const auto middle = rounds.begin() + std::ssize(rounds) / 2;
  std::nth_element(rounds.begin(), middle, rounds.end(), [](const BesideEachOther& a, const BesideEachOther& b) {
    return a.compute_seconds_per_byte() < b.compute_seconds_per_byte();
  });
  return *middle;
}

std::int64_t probe_file_bytes(std::int64_t block_bytes, const ProbeLimits& limits) {
  return block_bytes * blocks_of(block_bytes, limits, in_flight_of(block_bytes, limits, depths.back()));
}

DiskRate measure_disk(const std::filesystem::path& directory, std::int64_t block_bytes, const ProbeLimits& limits) {
  DiskTimer timer = make_timer(directory, block_bytes, limits, depths.back());
  timer.write_all();
  const int rounds = limits.seconds > 4 ? 3 : 1;
  const double seconds = limits.seconds / (5 * rounds);
  const std::int64_t depth = best_depth(timer, limits.seconds / 5);
  std::array<std::vector<double>, 3> rates;
  for (int round = 0; round < rounds; ++round) {
    rates[0].push_back(timer.pass(always_read, 1, seconds, depth));
    rates[1].push_back(timer.pass(always_write, 1, seconds, depth));
    rates[2].push_back(timer.pass(alternate, 2, seconds, depth));
  }
  for (auto& list : rates) std::sort(list.begin(), list.end());
  const auto middle = static_cast<std::size_t>(rounds / 2);
  DiskRate rate;
  rate.directory = directory.string();
  rate.device = device_of(directory);
  rate.block_bytes = block_bytes;
  rate.read_bytes_per_second = rates[0][middle];
  rate.write_bytes_per_second = rates[1][middle];
  rate.mixed_bytes_per_second = rates[2][middle];
  const double alone = static_cast<double>(block_bytes) / timer.pass(always_read, 1, seconds / 4, 1);
  rate.request_seconds = std::max(0.0, alone - static_cast<double>(block_bytes) / rate.read_bytes_per_second);
  rate.source = RateSource::measured;
  rate.depth = depth;
  return rate;
}

void measure_slowdowns(const DiskRate& on, int threads, const ProbeLimits& limits, MachineRates& rates) {
  const KernelKey key = product_key(matmul_has_bf16() ? DType::bf16 : DType::f32);
  const std::unique_ptr<Kernel> kernel = make_cpu_kernel(key);
  OpTimer products(threads, probe_product_bytes, kernel->scratch_bytes(), on.block_bytes >= huge_page_bytes);
  ProbeLimits of_disk = limits;
  of_disk.memory_bytes -= probe_product_bytes;
  DiskTimer disk = make_timer(on.directory, on.block_bytes, of_disk, on.depth);
  disk.write_all();
  const auto mean_time = [&](const auto& goes_on) {
    const auto start = SteadyClock::now();
    int runs = 0;
    do {
      products.run_once(key, *kernel);
      ++runs;
    } while (goes_on(seconds_since(start)));
    return seconds_since(start) / runs;
  };
  // On a virtual machine computing beside a disk may be slowed only tenths of a second later, and hardly after an idle
  // moment, as if its share of the host's processors were counted in periods. So products go on all the time, and of
  // each state the first part does not count.
  const int count = limits.seconds > 2 ? 3 : 1;
  const double seconds = limits.seconds / (6 * count);
  const auto for_a_part = [&](double passed) { return passed < seconds; };
  std::vector<BesideEachOther> rounds(static_cast<std::size_t>(count));
  for (BesideEachOther& round : rounds) {
    mean_time(for_a_part);
    round.product_alone = mean_time(for_a_part);
    std::exception_ptr failure;
    std::atomic<bool> settling = true;
    std::atomic<bool> moving = true;
    std::thread mover([&] {
      run_promptly();
      try {
        disk.pass(alternate, 2, 2 * seconds, disk.in_flight());
        settling = false;
        round.disk_beside = disk.pass(alternate, 2, 2 * seconds, disk.in_flight());
      } catch (const std::exception&) {
        failure = std::current_exception();
      }
      settling = moving = false;
    });
    mean_time([&](double) { return settling.load(); });
    round.product_beside = mean_time([&](double) { return moving.load(); });
    mover.join();
    if (failure) std::rethrow_exception(failure);
  }
  const BesideEachOther usual = usual_of(rounds);
  rates.compute_slowdown = std::clamp(usual.product_beside / usual.product_alone, 1.0, 4.0);
  rates.disk_slowdown = std::clamp(on.mixed_bytes_per_second / usual.disk_beside, 1.0, 4.0);
}

}  // namespace spillway
