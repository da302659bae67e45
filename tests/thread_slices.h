// What the scheduler lets threads run at a stretch, from sched_getattr (man 2 sched_setattr).
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>

namespace spillway {

// The slice that run_promptly asks for.
inline constexpr std::uint64_t prompt_slice_ns = 100'000;

// 0 where the kernel has none to ask for, which is so before Linux 6.12. `thread` 0: the calling one.
inline std::uint64_t slice_ns_of(pid_t thread) {
  std::array<std::byte, 48> attributes{};
  if (syscall(SYS_sched_getattr, thread, attributes.data(), attributes.size(), 0) != 0) return 0;  // it has ended
  std::uint64_t slice = 0;
  std::memcpy(&slice, attributes.data() + 24, sizeof(slice));
  return slice;
}

// Of this process.
inline std::int64_t prompt_threads() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return std::count_if(begin(threads), end(threads), [](const std::filesystem::directory_entry& thread) {
    return slice_ns_of(std::stoi(thread.path().filename().string())) == prompt_slice_ns;
  });
}

}  // namespace spillway
