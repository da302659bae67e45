// Time passed, for whoever measures.
#pragma once

#include <chrono>

namespace spillway {

using SteadyClock = std::chrono::steady_clock;

inline double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

}  // namespace spillway
