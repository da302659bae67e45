// The compute threads of one processor. They share the tasks of one call at a time and sleep between calls, since disk
// threads want the cores too.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <type_traits>
#include <vector>

namespace spillway {

// Floating-point mode of the calling thread: round to nearest, subnormals kept (no FTZ, no DAZ), exceptions masked.
// Every thread that computes sets it, or placement on threads would change bits.
void set_float_mode();
// Ends the process when the calling thread's mode differs: some library changed it.
void check_float_mode();

class ThreadPool {
 public:
  // Starts threads - 1 workers; the caller of run is the other. Each worker sets the floating-point mode, then calls
  // on_start(its number, from 1), which must not throw; so does the constructing thread, as number 0. Returns when all
  // have.
  // Throws std::system_error where the system starts no more threads; those that it started have ended then.
  explicit ThreadPool(int threads, const std::function<void(int thread)>& on_start = nullptr);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls task(int thread, int64 index), or task(int thread, int64 index, int64 last), for each index from 0 to
  // tasks - 1, in any order on any threads, and returns when all are done; the caller is thread 0. `last` is what this
  // thread did before in this call, or -1. Allocates nothing. When a task throws (a std::exception), no more are
  // started, and the first exception is thrown here. One call at a time, and none from inside a task (checked).
  template <typename Task>
  void run(std::int64_t tasks, Task&& task) {
    using Callable = std::remove_reference_t<Task>;
    run_tasks(
        tasks,
        [](const void* context, int thread, std::int64_t index, std::int64_t last) {
          Callable& call = *static_cast<Callable*>(const_cast<void*>(context));
          if constexpr (std::is_invocable_v<Callable&, int, std::int64_t, std::int64_t>) {
            call(thread, index, last);
          } else {
            call(thread, index);
          }
        },
        &task);
  }

 private:
  using Call = void (*)(const void* context, int thread, std::int64_t index, std::int64_t last);

  void run_tasks(std::int64_t tasks, Call call, const void* context);
  void work(int thread);
  void stop();
  void drain(int thread);
  void await_workers();

  // The job; written while the gate is closed and nobody is inside.
  Call call_ = nullptr;
  const void* context_ = nullptr;
  std::int64_t tasks_ = 0;
  std::exception_ptr failure_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> busy_{false};
  alignas(64) std::atomic<std::int64_t> next_{0};
  // Count of jobs, whether workers may still join this one, and how many are inside: see thread_pool.cpp.
  alignas(64) std::atomic<std::uint32_t> gate_{0};
  alignas(64) std::atomic<std::uint32_t> emptied_{0};  // times that the last worker left a closed gate
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace spillway
