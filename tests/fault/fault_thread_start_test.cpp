// Whichever thread the system refuses: those that were started end, and the run with an error. The call is taken from
// the C library, counted, and passed on or refused.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <system_error>

#include "recording_observer.h"
#include "scratch_folder.h"
#include "session/session.h"
#include "small_run.h"

namespace {

std::atomic<int> started{0};
std::atomic<int> refused{-1};  // the number of the one, from 0; -1: none

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* given) {
  using Call = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto next = reinterpret_cast<Call>(::dlsym(RTLD_NEXT, "pthread_create"));
  if (started++ == refused) return EAGAIN;
  return next(thread, attributes, run, given);
}

namespace spillway {
namespace {

class ThreadStart : public testing::Test {
 protected:
  void SetUp() override {
    options_ = small_run(scratch_);
    options_.max_steps = 1;
    options_.threads = 3;
  }

  // Threads that a run starts, as far as it comes.
  int run(int refuse) {
    std::filesystem::remove_all(scratch_ / "out");
    options_.output_dir = (scratch_ / "out").string();
    started = 0;
    refused = refuse;
    RecordingObserver observer;
    try {
      run_train(options_, observer);
    } catch (const std::system_error& error) {
      EXPECT_EQ(error.code(), std::errc::resource_unavailable_try_again) << refuse;
      ++errors_;
    }
    refused = -1;
    return started;
  }

  void refuse_each() {
    const int all = run(-1);
    EXPECT_EQ(errors_, 0);
    ASSERT_GE(all, options_.threads) << "the call is not taken from the library";
    for (int one = 0; one < all; ++one) run(one);
    EXPECT_GE(errors_, options_.threads);
  }

  ScratchFolder scratch_;
  TrainOptions options_;
  int errors_ = 0;
};

TEST_F(ThreadStart, WhicheverIsRefusedOthersEnd) { refuse_each(); }

TEST_F(ThreadStart, OfTheThreadsThatReadAndWriteToo) {
  options_.allow_uring = false;
  options_.save_steps = 1;
  refuse_each();
}

TEST_F(ThreadStart, OfADeviceToo) {
  options_.device = "virtual";
  options_.device_memory_bytes = std::int64_t{1} << 26;
  options_.update_on = "2";
  refuse_each();
}

}  // namespace
}  // namespace spillway
