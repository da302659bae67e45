// What a signal handler, or another thread, may ask of a run. All members may be used in a signal handler.
#pragma once

#include <atomic>

namespace spillway {

struct RunControl {
  std::atomic<int> stop{0};         // not 0: finish the step, commit, and end; the number of the signal
  std::atomic<bool> commit{false};  // commit after this step; taken back when it is done
};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

}  // namespace spillway
