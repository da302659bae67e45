// Holds the ops of a virtual processor to its rate: one ends when that processor would be done with it. One thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

namespace spillway {

class OpPace {
 public:
  // A rate of 0: as fast as they run.
  explicit OpPace(double units_per_second) : units_per_second_(units_per_second) {}

  // Runs `work`, and returns when the processor would have done so many units.
  template <typename Work>
  void run(double units, const Work& work) {
    // A sleep overshoots a little, which the next op may make up for.
    const Clock::time_point begin = std::max(free_, Clock::now() - longest_catch_up);
    work();
    if (units_per_second_ <= 0) return;
    free_ = begin + std::chrono::nanoseconds(static_cast<std::int64_t>(units / units_per_second_ * 1e9));
    if (free_ - Clock::now() > shortest_sleep) std::this_thread::sleep_until(free_);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr auto shortest_sleep = std::chrono::microseconds(50);
  static constexpr auto longest_catch_up = std::chrono::milliseconds(2);

  double units_per_second_;
  Clock::time_point free_;  // the schedule's end so far
};

}  // namespace spillway
