// Holds copies over a virtual link to its rate: bytes leave on a schedule, which sleeping keeps, so that the link is
// busy as long as a real one would be and the processor is not. One direction; one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace spillway {

class LinkPace {
 public:
  // A rate of 0: as fast as memory is copied.
  LinkPace(double bytes_per_second, double copy_seconds)
      : bytes_per_second_(bytes_per_second), copy_seconds_(copy_seconds) {}

  // Copies, and returns when the link would be done.
  void copy(std::byte* to, const std::byte* from, std::int64_t size_bytes);

 private:
  using Clock = std::chrono::steady_clock;

  double bytes_per_second_;
  double copy_seconds_;
  Clock::time_point free_;  // the schedule's end so far
};

}  // namespace spillway
