// What the compute thread and the disk thread share while a plan runs, and the random delays that tests put between
// them.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include "executor/executor.h"

namespace spillway {

// A small generator for the delays of tests; each thread has its own.
class Delays {
 public:
  explicit Delays(std::uint64_t seed) : state_(seed) {}
  void maybe_sleep() {
    if (state_ == 0) return;
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    if (state_ % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(state_ / 8 % 300));
  }

 private:
  std::uint64_t state_;
};

constexpr std::int32_t never = std::numeric_limits<std::int32_t>::max();

struct Executor::Lanes {
  std::array<std::atomic<std::int32_t>, lane_count> done{};  // instructions of each lane that are done, in order
  std::atomic<std::uint32_t> events{0};                      // grows with every change the compute thread may wait for
  std::atomic<std::int32_t> wake_at{never};                  // compute position at which the disk thread wants a wake
  std::atomic<bool> failed{false};

  std::mutex mutex;
  std::condition_variable changed;
  const Prepared* job = nullptr;  // taken by the disk thread; null when it is done
  std::exception_ptr failure;     // the first one
  bool stop = false;

  // Of the disk thread alone.
  std::array<std::size_t, lane_count> next{};  // next to start in its lane
  std::array<std::int32_t, lane_count> in_flight{};
  Traffic traffic;             // moved so far; read by the other thread when the job is done
  std::vector<bool> complete;  // by instruction
  std::thread thread;

  void signal() {
    events.fetch_add(1);
    events.notify_all();
  }
};

}  // namespace spillway
