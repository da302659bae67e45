#include <gtest/gtest.h>
#include <immintrin.h>

#include <chrono>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "device/thread_pool.h"

namespace spillway {
namespace {

class DeviceThreadPool : public testing::TestWithParam<int> {};

TEST_P(DeviceThreadPool, RunsEachTaskOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.threads(), GetParam());
  for (const std::int64_t tasks : {0, 1, 2, 3, 7, 1000}) {
    std::vector<int> count(static_cast<std::size_t>(tasks), 0);
    pool.run(tasks, [&](int thread, std::int64_t task) {
      EXPECT_GE(thread, 0);
      EXPECT_LT(thread, GetParam());
      ++count[static_cast<std::size_t>(task)];
    });
    EXPECT_EQ(count, std::vector<int>(static_cast<std::size_t>(tasks), 1)) << tasks;
  }
}

TEST_P(DeviceThreadPool, SaysWhatAThreadDidLastInThisRun) {
  ThreadPool pool(GetParam());
  for (int run = 0; run < 100; ++run) {
    std::vector<std::int64_t> last_of(static_cast<std::size_t>(GetParam()), -1);
    const auto task = [&](int thread, std::int64_t index, std::int64_t last) {
      EXPECT_EQ(last, last_of[static_cast<std::size_t>(thread)]);
      last_of[static_cast<std::size_t>(thread)] = index;
      if (run % 3 == 1 && index == 5) throw std::runtime_error("the next run knows nothing of this one");
    };
    try {
      pool.run(20, task);
    } catch (const std::runtime_error&) {
      EXPECT_EQ(run % 3, 1);
    }
  }
}

TEST_P(DeviceThreadPool, ManySmallRunsInCloseSuccession) {
  ThreadPool pool(GetParam());
  std::vector<std::int64_t> sums(8, 0);
  // Plain memory, written by whichever thread takes the task: each run must see all of the one before.
  for (std::int64_t run = 0; run < 20000; ++run) {
    pool.run(8, [&](int, std::int64_t task) { sums[static_cast<std::size_t>(task)] += run; });
  }
  EXPECT_EQ(sums, std::vector<std::int64_t>(8, 20000LL * 19999 / 2));
}

TEST_P(DeviceThreadPool, RunsAfterSleeping) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<std::int64_t> sum{0};
    pool.run(100, [&](int, std::int64_t task) { sum += task; });
    EXPECT_EQ(sum, 4950);
  }
}

TEST_P(DeviceThreadPool, ThrowsTheFirstExceptionAndGoesOn) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> ran{0};
    try {
      pool.run(1000, [&](int, std::int64_t task) {
        ++ran;
        if (task >= 10) throw std::runtime_error("task " + std::to_string(task));
      });
      FAIL() << "no exception";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(std::string(error.what()).rfind("task ", 0), 0U);
    }
    EXPECT_GE(ran, 11);
    EXPECT_LE(ran, 10 + GetParam());
    std::atomic<int> count{0};
    pool.run(10, [&](int, std::int64_t) { ++count; });
    EXPECT_EQ(count, 10);
  }
}

TEST_P(DeviceThreadPool, StartsEveryThreadOnceInTheStandardFloatMode) {
  std::mutex mutex;
  std::set<int> started;
  _mm_setcsr(_mm_getcsr() | 0x8040);  // FTZ and DAZ, which threads inherit
  ThreadPool pool(GetParam(), [&](int thread) {
    check_float_mode();
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(started.insert(thread).second);
  });
  check_float_mode();
  EXPECT_EQ(started.size(), static_cast<std::size_t>(GetParam()));
  pool.run(100, [](int, std::int64_t) { check_float_mode(); });
}

INSTANTIATE_TEST_SUITE_P(Threads, DeviceThreadPool, testing::Values(1, 2, 3, 4, 5));

TEST(DeviceThreadPoolShare, WorkersTakePart) {
  ThreadPool pool(3);
  std::set<int> threads;
  std::mutex mutex;
  // Tasks last until all three threads have come, however slowly they wake.
  pool.run(3, [&](int thread, std::int64_t) {
    {
      const std::lock_guard lock(mutex);
      threads.insert(thread);
    }
    for (;;) {
      {
        const std::lock_guard lock(mutex);
        if (threads.size() == 3) return;
      }
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(threads, (std::set<int>{0, 1, 2}));
}

TEST(DeviceThreadPoolDeathTest, NestedUseIsRefused) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        ThreadPool pool(2);
        pool.run(2, [&](int, std::int64_t) { pool.run(1, [](int, std::int64_t) {}); });
      },
      "a task calls ThreadPool::run");
}

TEST(DeviceThreadPoolDeathTest, AChangedFloatModeIsNoticed) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        _mm_setcsr(_mm_getcsr() | 0x8000);
        check_float_mode();
      },
      "floating-point mode");
}

}  // namespace
}  // namespace spillway
