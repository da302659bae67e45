#include "store/faulty_io.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <random>

#include "base/error.h"

namespace spillway {
namespace {

class FaultyEngine final : public IoEngine {
 public:
  FaultyEngine(std::unique_ptr<IoEngine> inner, const IoFaults& faults)
      : inner_(std::move(inner)), faults_(faults), random_(faults.seed) {}

  int add_file(int descriptor) override { return inner_->add_file(descriptor); }

  void submit(const IoRequest& request) override {
    const std::int64_t number = count_++;
    if (faults_.fail_at >= 0 && (number == faults_.fail_at || (faults_.fail_after && number > faults_.fail_at))) {
      ready_.push_back({request.tag, 0, faults_.error, request.bytes});
    } else if (chance(faults_.short_share)) {
      submit_short(request);
    } else {
      inner_->submit(request);
    }
  }

  void wait(std::vector<IoCompletion>& done) override {
    if (ready_.empty()) {
      std::vector<IoCompletion> ended;
      inner_->wait(ended);
      for (IoCompletion& completion : ended) {
        if (const auto cut = cut_.extract(completion.tag)) completion.wanted_bytes = cut.mapped();
        (chance(faults_.delay_share) ? ready_ : done).push_back(completion);
      }
      if (ended.empty() || ready_.size() < ended.size()) return;
    }
    done.insert(done.end(), ready_.begin(), ready_.end());
    ready_.clear();
  }

  void wake() override { inner_->wake(); }
  int flush(int file) override { return inner_->flush(file); }
  std::string describe() const override { return inner_->describe() + ", with faults"; }

 private:
  bool chance(double share) { return std::uniform_real_distribution<double>(0.0, 1.0)(random_) < share; }

  void submit_short(IoRequest request) {
    const std::int64_t wanted_bytes = request.bytes;
    const std::int64_t units = (request.bytes - 1) / 4096;
    request.bytes = std::uniform_int_distribution<std::int64_t>(0, units)(random_) * 4096;
    if (request.bytes == 0) {
      ready_.push_back({request.tag, 0, 0, wanted_bytes});
    } else {
      cut_[request.tag] = wanted_bytes;
      inner_->submit(request);
    }
  }

  std::unique_ptr<IoEngine> inner_;
  IoFaults faults_;
  std::mt19937_64 random_;
  std::int64_t count_ = 0;
  std::map<std::uint64_t, std::int64_t> cut_;  // by tag, what requests under way wanted that were made short
  std::vector<IoCompletion> ready_;
};

class ThrottledEngine final : public IoEngine {
 public:
  ThrottledEngine(std::unique_ptr<IoEngine> inner, std::int64_t bytes_per_second)
      : inner_(std::move(inner)), bytes_per_second_(bytes_per_second) {
    SPILLWAY_CHECK(bytes_per_second > 0, "{} bytes per second", bytes_per_second);
  }

  int add_file(int descriptor) override { return inner_->add_file(descriptor); }

  void submit(const IoRequest& request) override {
    if (under_way_ == 0) busy_until_ = std::max(busy_until_, Clock::now());
    ++under_way_;
    inner_->submit(request);
  }

  void wait(std::vector<IoCompletion>& done) override {
    if (held_.empty()) {
      std::vector<IoCompletion> ended;
      inner_->wait(ended);
      for (const IoCompletion& completion : ended) hold(completion);
      if (ended.empty()) {
        take_wake();
        return;
      }
    }
    std::unique_lock lock(mutex_);
    woken_.wait_until(lock, held_.front().due, [this] { return wake_; });
    lock.unlock();
    take_wake();
    while (!held_.empty() && held_.front().due <= Clock::now()) {
      done.push_back(held_.front().completion);
      held_.pop_front();
      --under_way_;
    }
  }

  void wake() override {
    {
      const std::lock_guard lock(mutex_);
      wake_ = true;
    }
    woken_.notify_one();
    inner_->wake();
  }

  int flush(int file) override { return inner_->flush(file); }

  std::string describe() const override {
    return fmt::format("{}, slowed to {} bytes per second", inner_->describe(), bytes_per_second_);
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Held {
    IoCompletion completion;
    Clock::time_point due;
  };

  void hold(const IoCompletion& completion) {
    const std::chrono::duration<double> cost(static_cast<double>(completion.bytes) /
                                             static_cast<double>(bytes_per_second_));
    busy_until_ += std::chrono::duration_cast<Clock::duration>(cost);
    held_.push_back({completion, busy_until_});
  }

  void take_wake() {
    const std::lock_guard lock(mutex_);
    wake_ = false;
  }

  std::unique_ptr<IoEngine> inner_;
  std::int64_t bytes_per_second_;
  Clock::time_point busy_until_{};
  std::int64_t under_way_ = 0;
  std::deque<Held> held_;  // in the order in which they are due
  std::mutex mutex_;
  std::condition_variable woken_;
  bool wake_ = false;
};

}  // namespace

std::unique_ptr<IoEngine> make_faulty_engine(std::unique_ptr<IoEngine> inner, const IoFaults& faults) {
  return std::make_unique<FaultyEngine>(std::move(inner), faults);
}

std::unique_ptr<IoEngine> make_throttled_engine(std::unique_ptr<IoEngine> inner, std::int64_t bytes_per_second) {
  return std::make_unique<ThrottledEngine>(std::move(inner), bytes_per_second);
}

}  // namespace spillway
