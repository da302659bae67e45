#include "probe/probe.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>

#include "base/bytes.h"
#include "base/error.h"
#include "device/thread_pool.h"
#include "ops/matmul/matmul.h"
#include "store/io.h"
#include "store/slot_file.h"

namespace spillway {
namespace {

using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

// Runs one class of op on zeroed operands.
class OpTimer {
 public:
  OpTimer(const KernelCache& kernels, int threads)
      : threads_(threads, [](int) { prepare_matmul_thread(); }),
        scratch_bytes_(round_up(kernels.scratch_bytes(), 4096)),
        scratch_(scratch_bytes_ * threads) {}

  double seconds(const KernelKey& key, const Kernel& kernel) {
    std::vector<AlignedBytes> storage;
    std::vector<const std::byte*> reads;
    std::vector<std::byte*> writes;
    for (const ValueType& type : key.reads) {
      if (type.rows > 0) storage.emplace_back(type.bytes());
      reads.push_back(type.rows > 0 ? storage.back().data() : nullptr);
    }
    for (const ValueType& type : key.writes) {
      storage.emplace_back(type.bytes());
      writes.push_back(storage.back().data());
    }
    std::array<double, 3> times{};
    run(kernel, reads, writes);
    for (double& time : times) {
      const auto start = SteadyClock::now();
      run(kernel, reads, writes);
      time = seconds_since(start);
    }
    std::sort(times.begin(), times.end());
    return times[1];
  }

 private:
  void run(const Kernel& kernel, std::span<const std::byte* const> reads, std::span<std::byte* const> writes) {
    threads_.run(kernel.tasks(), [&](int thread, std::int64_t task) {
      std::byte* const scratch = scratch_.data() + thread * scratch_bytes_;
      kernel.run(task, {reads, writes, {scratch, static_cast<std::size_t>(scratch_bytes_)}});
    });
  }

  ThreadPool threads_;
  std::int64_t scratch_bytes_;
  AlignedBytes scratch_;
};

// Passes over slots of one file, as many in flight as the executor has.
class DiskTimer {
 public:
  DiskTimer(const std::filesystem::path& directory, std::int64_t block_bytes, std::int64_t blocks)
      : engine_(make_io_engine({})),
        store_({{directory}, block_bytes, blocks}, *engine_),
        block_bytes_(block_bytes),
        memory_(in_flight * block_bytes) {
    for (std::int64_t i = 0; i < blocks; ++i) slots_.push_back(store_.allocate());
  }

  // Bytes a second; `kind_of` says what to do with the n-th block.
  double pass(const std::function<IoRequest::Kind(std::size_t)>& kind_of) {
    const auto start = SteadyClock::now();
    std::vector<std::int64_t> idle;
    for (std::int64_t i = 0; i < in_flight; ++i) idle.push_back(i);
    std::vector<IoCompletion> done;
    std::size_t next = 0;
    for (std::size_t finished = 0; finished < slots_.size();) {
      for (; !idle.empty() && next < slots_.size(); ++next) {
        const SlotStore::Location at = store_.location(slots_[next]);
        engine_->submit({kind_of(next), at.file, at.offset_bytes, memory_.data() + idle.back() * block_bytes_,
                         block_bytes_, static_cast<std::uint64_t>(idle.back())});
        idle.pop_back();
      }
      done.clear();
      engine_->wait(done);
      for (const IoCompletion& completion : done) {
        if (completion.error != 0) throw store_.failure(slots_.front(), IoRequest::Kind::write, completion);
        idle.push_back(static_cast<std::int64_t>(completion.tag));
        ++finished;
      }
    }
    return static_cast<double>(block_bytes_) * static_cast<double>(slots_.size()) / seconds_since(start);
  }

 private:
  static constexpr std::int64_t in_flight = 16;

  std::unique_ptr<IoEngine> engine_;
  SlotStore store_;
  std::int64_t block_bytes_;
  AlignedBytes memory_;
  std::vector<SlotId> slots_;
};

}  // namespace

std::vector<double> measure_ops(const Program& program, KernelCache& kernels, int threads) {
  OpTimer timer(kernels, threads);
  std::map<const Kernel*, double> known;
  std::vector<double> seconds;
  for (const Op& op : program.ops) {
    const KernelKey key = key_of(program, op);
    const Kernel& kernel = kernels.get(key);
    const auto [entry, fresh] = known.try_emplace(&kernel, 0);
    if (fresh) entry->second = timer.seconds(key, kernel);
    seconds.push_back(entry->second);
  }
  return seconds;
}

DiskRates measure_disk(const std::filesystem::path& directory, std::int64_t block_bytes, std::int64_t file_bytes) {
  DiskTimer timer(directory, block_bytes, std::max<std::int64_t>(16, file_bytes / block_bytes));
  DiskRates rates;
  rates.write_bytes_per_second = timer.pass([](std::size_t) { return IoRequest::Kind::write; });
  rates.read_bytes_per_second = timer.pass([](std::size_t) { return IoRequest::Kind::read; });
  rates.mixed_bytes_per_second =
      timer.pass([](std::size_t n) { return n % 2 == 0 ? IoRequest::Kind::read : IoRequest::Kind::write; });
  return rates;
}

}  // namespace spillway
