// Reads and writes for kernels that refuse io_uring: a few threads that each carry out one part at a time.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/bytes.h"
#include "base/error.h"
#include "store/io_engines.h"
#include "store/io_parts.h"

namespace spillway {
namespace {

constexpr int most_threads = 4;

class ThreadEngine final : public IoEngine {
 public:
  ThreadEngine(const IoOptions& options, std::string reason)
      : options_(options), reason_(std::move(reason)), parts_(options.depth, options.request_bytes) {
    const int count = std::min(options.depth, most_threads);
    try {
      for (int i = 0; i < count; ++i) threads_.emplace_back([this] { work(); });
    } catch (...) {  // the system starts no more
      stop();
      throw;
    }
  }

  ~ThreadEngine() override { stop(); }

  int add_file(int descriptor) override {
    const std::lock_guard lock(mutex_);
    return files_.add(descriptor);
  }

  void submit(const IoRequest& request) override {
    {
      const std::lock_guard lock(mutex_);
      parts_.add(request, files_.at(request.file).direct);
    }
    work_.notify_all();
  }

  void wait(std::vector<IoCompletion>& done) override {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return !done_.empty() || woken_; });
    woken_ = false;
    done.insert(done.end(), done_.begin(), done_.end());
    done_.clear();
  }

  void wake() override {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    ended_.notify_one();
  }

  // Files are added and flushed by one thread, so the lock, which workers need, is not held.
  int flush(int number) override { return files_.flush(number); }

  std::string describe() const override {
    return fmt::format("{} threads of pread and pwrite, requests of {} ({})", threads_.size(),
                       format_bytes(options_.request_bytes), reason_);
  }

 private:
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void work() {
    run_promptly();
    std::unique_lock lock(mutex_);
    for (;;) {
      int part = -1;
      work_.wait(lock, [this, &part] { return stop_ || (part = parts_.start()) >= 0; });
      if (stop_) return;
      const IoParts::Transfer transfer = parts_.transfer(part);
      const int descriptor = files_.at(transfer.file).descriptor;
      lock.unlock();
      const std::int64_t result = carry_out(transfer, descriptor);
      lock.lock();
      const std::size_t before = done_.size();
      parts_.finish(part, result, done_);
      if (done_.size() > before) ended_.notify_one();
    }
  }

  static std::int64_t carry_out(const IoParts::Transfer& transfer, int descriptor) {
    const auto bytes = static_cast<std::size_t>(transfer.bytes);
    const ssize_t result = transfer.kind == IoRequest::Kind::read
                               ? pread(descriptor, transfer.data, bytes, transfer.offset_bytes)
                               : pwrite(descriptor, transfer.data, bytes, transfer.offset_bytes);
    return result >= 0 ? result : -errno;
  }

  IoOptions options_;
  std::string reason_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable ended_;
  IoParts parts_;
  IoFiles files_;
  std::vector<IoCompletion> done_;
  bool woken_ = false;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<IoEngine> make_thread_engine(const IoOptions& options, const std::string& reason) {
  return std::make_unique<ThreadEngine>(options, reason);
}

}  // namespace spillway
