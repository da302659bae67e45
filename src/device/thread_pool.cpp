// A job is open to workers through the gate, one word: the low bits count the workers inside, one bit says that they
// may enter, the high bits count jobs. A worker that wakes late finds the gate closed and goes back to sleep: the
// caller never waits for a thread that has not begun, however busy the cores are.
#include "device/thread_pool.h"

#include <immintrin.h>

#include <utility>

#include "base/error.h"

namespace spillway {
namespace {

constexpr std::uint32_t inside_mask = 0x7fff;
constexpr std::uint32_t open_bit = 0x8000;
constexpr std::uint32_t job_unit = 0x10000;
constexpr std::uint32_t job_mask = 0xffff0000;

// MXCSR: all exceptions masked, nearest, no FTZ, no DAZ; the low six bits are sticky flags.
constexpr std::uint32_t standard_mxcsr = 0x1f80;
constexpr std::uint32_t mxcsr_flags = 0x3f;

// About 3 us: shorter than a wake-up, so that runs in close succession find the workers awake.
constexpr int spin_count = 64;

thread_local bool inside_task = false;

template <typename Condition>
bool spin_until(Condition&& condition) {
  for (int i = 0; i < spin_count; ++i) {
    if (condition()) return true;
    _mm_pause();
  }
  return condition();
}

}  // namespace

void set_float_mode() { _mm_setcsr(standard_mxcsr); }

void check_float_mode() {
  const std::uint32_t mode = _mm_getcsr() & ~mxcsr_flags;
  SPILLWAY_CHECK(mode == standard_mxcsr, "floating-point mode {:#x} is not {:#x}", mode, standard_mxcsr);
}

ThreadPool::ThreadPool(int threads, const std::function<void(int)>& on_start) {
  SPILLWAY_CHECK(threads >= 1 && threads < static_cast<int>(inside_mask), "{} threads", threads);
  const auto start = [&on_start](int thread) {
    set_float_mode();
    if (on_start) on_start(thread);
  };
  std::atomic<int> starting{threads - 1};
  workers_.reserve(static_cast<std::size_t>(threads - 1));
  const auto wait_for_start = [&starting](int missing) {
    while (starting.load(std::memory_order_acquire) != missing) std::this_thread::yield();
  };
  try {
    for (int thread = 1; thread < threads; ++thread) {
      workers_.emplace_back([this, thread, &start, &starting] {
        start(thread);
        // The last access to the constructor's frame is this store, seen by polling: a notify could come after its end.
        starting.fetch_sub(1, std::memory_order_release);
        work(thread);
      });
    }
  } catch (...) {  // the system starts no more
    wait_for_start(threads - 1 - static_cast<int>(workers_.size()));
    stop();
    throw;
  }
  start(0);
  wait_for_start(0);
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stop_.store(true, std::memory_order_relaxed);
  gate_.fetch_add(job_unit, std::memory_order_release);
  gate_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::work(int thread) {
  std::uint32_t seen = 0;  // the job this worker took part in last
  for (;;) {
    std::uint32_t gate = gate_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    const bool join = (gate & open_bit) != 0 && (gate & job_mask) != seen;
    if (join) {
      if (!gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acquire)) continue;
      seen = gate & job_mask;
      drain(thread);
      const std::uint32_t left = gate_.fetch_sub(1, std::memory_order_release) - 1;
      if ((left & (open_bit | inside_mask)) == 0) {
        emptied_.fetch_add(1, std::memory_order_release);
        emptied_.notify_one();
      }
      continue;
    }
    const auto changed = [this, gate] {
      return (gate_.load(std::memory_order_relaxed) & job_mask) != (gate & job_mask);
    };
    if (!spin_until(changed)) gate_.wait(gate, std::memory_order_relaxed);
  }
}

void ThreadPool::drain(int thread) {
  inside_task = true;
  std::int64_t last = -1;
  for (;;) {
    const std::int64_t index = next_.fetch_add(1, std::memory_order_relaxed);
    if (index >= tasks_) break;
    try {
      call_(context_, thread, index, std::exchange(last, index));
    } catch (const std::exception&) {
      if (!failed_.exchange(true, std::memory_order_relaxed)) failure_ = std::current_exception();
      next_.store(tasks_, std::memory_order_relaxed);
    }
  }
  inside_task = false;
}

void ThreadPool::run_tasks(std::int64_t tasks, Call call, const void* context) {
  SPILLWAY_CHECK(!inside_task, "a task calls ThreadPool::run: {} tasks", tasks);
  SPILLWAY_CHECK(!busy_.exchange(true, std::memory_order_acquire), "two threads call ThreadPool::run: {} tasks", tasks);
  call_ = call;
  context_ = context;
  tasks_ = tasks;
  next_.store(0, std::memory_order_relaxed);
  const bool share = tasks > 1 && !workers_.empty();
  if (share) {
    gate_.fetch_add(job_unit | open_bit, std::memory_order_release);
    gate_.notify_all();
  }
  drain(0);
  if (share) await_workers();
  std::exception_ptr failure;
  if (failed_.exchange(false, std::memory_order_relaxed)) failure = std::exchange(failure_, nullptr);
  busy_.store(false, std::memory_order_release);
  if (failure) std::rethrow_exception(failure);
}

void ThreadPool::await_workers() {
  gate_.fetch_and(~open_bit, std::memory_order_relaxed);
  const auto empty = [this] { return (gate_.load(std::memory_order_acquire) & inside_mask) == 0; };
  while (!spin_until(empty)) {
    const std::uint32_t emptied = emptied_.load(std::memory_order_acquire);
    if (empty()) return;
    emptied_.wait(emptied, std::memory_order_acquire);
  }
}

}  // namespace spillway
