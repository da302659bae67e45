#include "executor/link_pace.h"

#include <algorithm>
#include <cstring>
#include <thread>

namespace spillway {
namespace {

constexpr std::int64_t chunk_bytes = std::int64_t{1} << 20;
// A sleep overshoots by about as much, so shorter ones are left to the next chunk; how far a copy that comes right
// after another may catch up on the schedule.
constexpr auto shortest_sleep = std::chrono::microseconds(50);
constexpr auto longest_catch_up = std::chrono::milliseconds(2);

std::chrono::nanoseconds duration_of(double seconds) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

}  // namespace

void LinkPace::copy(std::byte* to, const std::byte* from, std::int64_t size_bytes) {
  Clock::time_point due = std::max(free_, Clock::now() - longest_catch_up);
  due += duration_of(copy_seconds_);
  for (std::int64_t done = 0; done < size_bytes; done += chunk_bytes) {
    const std::int64_t bytes = std::min(chunk_bytes, size_bytes - done);
    std::memcpy(to + done, from + done, static_cast<std::size_t>(bytes));
    if (bytes_per_second_ <= 0) continue;
    due += duration_of(static_cast<double>(bytes) / bytes_per_second_);
    if (due - Clock::now() > shortest_sleep) std::this_thread::sleep_until(due);
  }
  free_ = due;
}

}  // namespace spillway
