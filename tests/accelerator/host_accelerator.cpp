#include "accelerator/host_accelerator.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "cuda/cuda.h"
#include "device/thread_pool.h"
#include "executor/accelerator.h"
#include "executor/kernel_table.h"
#include "ops/matmul/matmul.h"
#include "plan/plan.h"

namespace spillway {
namespace {

constexpr std::int64_t memory = 8 * gib;
constexpr std::int64_t page = 4096;

HostAcceleratorFaults faults_of_next;
HostAcceleratorUse use_of_last;

// What was started, done in order by one thread. What comes after a failure is not done, and who waits hears of it.
class OpQueue {
 public:
  explicit OpQueue(const HostAcceleratorFaults& faults)
      : until_failure_(faults.ops_until_failure), delay_seed_(faults.delay_seed), thread_([this] { serve(); }) {}

  ~OpQueue() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  std::int64_t start(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    throw_failure();
    waiting_.push_back(std::move(work));
    most_ahead_ = std::max(most_ahead_, ++started_ - done_);
    changed_.notify_all();
    return started_;
  }

  std::int64_t started() {
    const std::lock_guard lock(mutex_);
    throw_failure();
    return started_;
  }

  bool is_done(std::int64_t count) {
    const std::lock_guard lock(mutex_);
    throw_failure();
    return done_ >= count;
  }

  void wait(std::int64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= count || failed_; });
    throw_failure();
  }

  // Also after a failure.
  void come_to_rest() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ == started_ || failed_; });
  }

  HostAcceleratorUse use() {
    const std::lock_guard lock(mutex_);
    return {.ops = done_, .most_ahead = most_ahead_};
  }

 private:
  void throw_failure() const {
    if (failed_) throw DeviceError("the device failed while running an op; what was committed is safe");
  }

  static bool is_done_without_fault(const std::function<void()>& work) {
    try {
      work();
      check_float_mode();
      return true;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "an op: " << error.what();
      return false;
    }
  }

  void serve() {
    set_float_mode();
    prepare_matmul_thread();
    std::mt19937_64 random(delay_seed_);
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || (!waiting_.empty() && !failed_); });
      if (stop_) return;
      const std::function<void()> work = std::move(waiting_.front());
      waiting_.pop_front();
      failed_ = until_failure_ >= 0 && done_ == until_failure_;
      if (!failed_) {
        lock.unlock();
        if (delay_seed_ != 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 64));
        const bool worked = is_done_without_fault(work);
        lock.lock();
        failed_ = !worked;
        done_ += worked ? 1 : 0;
      }
      changed_.notify_all();
    }
  }

  const std::int64_t until_failure_;
  const std::uint64_t delay_seed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  std::int64_t started_ = 0;
  std::int64_t done_ = 0;
  std::int64_t most_ahead_ = 0;
  bool failed_ = false;
  bool stop_ = false;
  std::thread thread_;
};

class HostAccelerator final : public Accelerator {
 public:
  HostAccelerator() : queue_(faults_of_next), faults_(faults_of_next) {}
  ~HostAccelerator() override {
    give_back();
    use_of_last = queue_.use();
    use_of_last.replayed = replayed_;
    use_of_last.reads = reads_;
    use_of_last.written_bytes = written_bytes_;
  }

  std::string describe() const override { return "this processor in the place of a device"; }
  std::string numeric_key() const override { return "this processor in the place of a device"; }
  std::int64_t memory_bytes() const override { return memory; }
  std::int64_t free_bytes() const override { return memory - page_count_ * page_bytes_; }

  MachineRates measured(MachineRates rates) override {
    rates.bf16_flops_per_second = rates.f32_flops_per_second = 1e11;
    rates.memory_bytes_per_second = {2e10};
    rates.link = {.up_bytes_per_second = 4e9, .down_bytes_per_second = 4e9, .copy_seconds = 1e-5};
    rates.source = RateSource::measured;
    rates.ops.clear();
    return rates;
  }

  std::vector<double> measured_ops(std::span<const KernelKey> ops, std::int64_t, double) override {
    return std::vector<double>(ops.size(), faults_.op_seconds);
  }

  std::unique_ptr<Kernel> make_kernel(const KernelKey& key) override {
    std::unique_ptr<Kernel> kernel = make_cpu_kernel(key);
    scratch_bytes_ = std::max(scratch_bytes_, kernel->scratch_bytes());
    return std::make_unique<Started>(std::move(kernel), *this);
  }

  void reserve(const AcceleratorMemory& wanted, HostPagePool&) override {
    SPILLWAY_CHECK(base_ == nullptr, "memory is reserved already");
    page_bytes_ = wanted.page_bytes;
    page_count_ = wanted.page_count;
    address_bytes_ = wanted.address_bytes;
    file_ = memfd_create("device", MFD_CLOEXEC);
    SPILLWAY_CHECK(file_ >= 0 && ftruncate(file_, page_count_ * page_bytes_) == 0, "no memory for the device");
    base_ = map(nullptr, address_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    mapped_.assign(static_cast<std::size_t>(address_bytes_ / page_bytes_), PageId::none);
    values_ = AlignedBytes(wanted.value_bytes);
    scratch_ = AlignedBytes(scratch_bytes_);
  }

  void give_back() override {
    queue_.come_to_rest();
    sequences_.clear();
    if (base_ == nullptr) return;
    munmap(base_, static_cast<std::size_t>(address_bytes_));
    close(file_);
    base_ = nullptr;
    page_count_ = 0;
  }

  std::byte* address(std::int64_t offset) const override { return base_ + offset; }
  std::byte* values() const override { return values_.data(); }

  void attach(std::int64_t offset, std::span<const PageId> pages, DeviceStream by) override {
    if (by == DeviceStream::compute) check_between_sequences();
    for (std::size_t i = 0; i < pages.size(); ++i) {
      const std::int64_t at = offset + static_cast<std::int64_t>(i) * page_bytes_;
      PageId& there = mapped_[static_cast<std::size_t>(at / page_bytes_)];
      if (there == pages[i]) continue;
      if (by == DeviceStream::compute && there != PageId::none) queue_.wait(queue_.started());
      map(base_ + at, page_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_,
          static_cast<std::int64_t>(pages[i]) * page_bytes_);
      there = pages[i];
    }
  }

  void fill(std::byte* at, std::byte value, std::int64_t bytes, DeviceStream by) override {
    const auto set = [=] { std::memset(at, std::to_integer<int>(value), static_cast<std::size_t>(bytes)); };
    if (by != DeviceStream::compute) return set();
    check_between_sequences();
    queue_.start(set);
  }

  void copy_up(std::byte* to, const HostBundle& from) override {
    std::memcpy(to, from.data, static_cast<std::size_t>(from.bytes));
  }
  void copy_down(const HostBundle& to, const std::byte* from) override {
    std::memcpy(to.data, from, static_cast<std::size_t>(to.bytes));
  }

  // Bundles are whole pages of 4 KiB, so files that bypass the page cache take them. Some reads end early.
  std::string why_not_direct(int /*descriptor*/) override { return faults_.reaches_disk ? "" : "nobody asked for one"; }
  std::int64_t read_file(int descriptor, std::int64_t offset, std::byte* to, std::int64_t bytes) override {
    const std::int64_t number = reads_.fetch_add(1);
    const std::int64_t failing = number - faults_.reads_until_failure;
    if (faults_.reads_until_failure >= 0 && failing >= 0 && failing < faults_.failing_reads) return -EIO;
    const std::int64_t part = number % 5 == 4 && bytes > page ? page : bytes;
    const ssize_t read = pread(descriptor, to, static_cast<std::size_t>(part), offset);
    return read < 0 ? -errno : read;
  }
  std::int64_t write_file(int descriptor, std::int64_t offset, const std::byte* from, std::int64_t bytes) override {
    const ssize_t written = pwrite(descriptor, from, static_cast<std::size_t>(bytes), offset);
    written_bytes_ += std::max<ssize_t>(written, 0);
    return written < 0 ? -errno : written;
  }

  void put(std::byte* to, const std::byte* from, std::int64_t bytes) override {
    check_between_sequences();
    queue_.wait(queue_.start([=] { std::memcpy(to, from, static_cast<std::size_t>(bytes)); }));
  }
  void get(std::byte* to, const std::byte* from, std::int64_t bytes) override { put(to, from, bytes); }

  // Recorded when it is started for the second time, as a CUDA device does.
  bool start_sequence(std::int64_t number) override {
    const auto found = sequences_.find(number);
    if (found == sequences_.end() || found->second.ops.empty()) return false;
    for (const auto& op : found->second.ops) queue_.start(op);
    ++replayed_;
    return true;
  }
  void begin_sequence(std::int64_t number) override {
    Sequence& sequence = sequences_[number];
    if (++sequence.starts > 1 && !sequence.cannot_be_recorded) recording_ = &sequence;
  }
  bool end_sequence() override {
    if (recording_ == nullptr) return true;
    Sequence& sequence = *recording_;
    recording_ = nullptr;
    if (faults_.refuses_to_record) {
      sequence.ops.clear();
      sequence.cannot_be_recorded = true;
      return false;
    }
    for (const auto& op : sequence.ops) queue_.start(op);
    return true;
  }

  std::int64_t mark() override {
    check_between_sequences();
    marks_[static_cast<std::size_t>(next_mark_ % most_marks)] = queue_.started();
    return next_mark_++;
  }
  bool is_done(std::int64_t mark) override { return queue_.is_done(at(mark)); }
  void wait(std::int64_t mark) override { queue_.wait(at(mark)); }

 private:
  // An op of the processor's that is started, with the operands it has then.
  class Started final : public Kernel {
   public:
    Started(std::unique_ptr<Kernel> kernel, HostAccelerator& device) : kernel_(std::move(kernel)), device_(device) {}
    std::int64_t tasks() const override { return 1; }
    void run(std::int64_t, const KernelArgs& args) const override {
      device_.start([this, reads = std::vector(args.reads.begin(), args.reads.end()),
                     writes = std::vector(args.writes.begin(), args.writes.end())] {
        const AlignedBytes& scratch = device_.scratch_;
        for (std::int64_t task = 0; task < kernel_->tasks(); ++task) {
          kernel_->run(task, {reads, writes, scratch.all()});
        }
      });
    }

   private:
    std::unique_ptr<Kernel> kernel_;
    HostAccelerator& device_;
  };

  struct Sequence {
    std::vector<std::function<void()>> ops;
    int starts = 0;
    bool cannot_be_recorded = false;
  };

  // Nothing else is started in the midst of a sequence that is recorded.
  void check_between_sequences() const { SPILLWAY_CHECK(recording_ == nullptr, "in the midst of a sequence"); }

  void start(std::function<void()> op) {
    if (recording_ == nullptr) {
      queue_.start(std::move(op));
    } else {
      recording_->ops.push_back(std::move(op));
    }
  }

  static std::byte* map(std::byte* at, std::int64_t bytes, int protection, int flags, int file, std::int64_t offset) {
    void* const made = mmap(at, static_cast<std::size_t>(bytes), protection, flags, file, offset);
    SPILLWAY_CHECK(made != MAP_FAILED, "no addresses for the device");
    return static_cast<std::byte*>(made);
  }

  std::int64_t at(std::int64_t mark) const {
    SPILLWAY_CHECK(mark < next_mark_ && mark >= next_mark_ - most_marks, "mark {} of {}", mark, next_mark_);
    return marks_[static_cast<std::size_t>(mark % most_marks)];
  }

  // What a driver takes when a device is opened. The budget counts what the process grows by then, in whole units of
  // 32 MiB, so that of a plan and of the run after it are alike.
  AlignedBytes driver_{4 * mib};
  OpQueue queue_;
  const HostAcceleratorFaults faults_;
  std::int64_t page_bytes_ = 0;
  std::int64_t page_count_ = 0;
  std::int64_t address_bytes_ = 0;
  int file_ = -1;
  std::byte* base_ = nullptr;
  std::vector<PageId> mapped_;  // by place in the range
  AlignedBytes values_;
  std::int64_t scratch_bytes_ = 0;
  AlignedBytes scratch_;
  std::array<std::int64_t, most_marks> marks_{};
  std::int64_t next_mark_ = 0;
  std::map<std::int64_t, Sequence> sequences_;
  Sequence* recording_ = nullptr;
  std::int64_t replayed_ = 0;
  std::atomic<std::int64_t> reads_{0};
  std::atomic<std::int64_t> written_bytes_{0};
};

}  // namespace

void set_host_accelerator_faults(const HostAcceleratorFaults& faults) { faults_of_next = faults; }
HostAcceleratorUse host_accelerator_use() { return use_of_last; }

// In the place of those that look for a CUDA device.
bool built_with_cuda() { return true; }
std::shared_ptr<Accelerator> open_cuda_device() { return std::make_shared<HostAccelerator>(); }

}  // namespace spillway
