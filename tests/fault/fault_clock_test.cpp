// A wall clock that jumps by decades in both directions, between steps and between a stop and the resume: nothing that
// a run does may depend on it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <ctime>
#include <set>

#include "golden/model_folder.h"
#include "one_choice.h"
#include "recording_observer.h"
#include "scratch_folder.h"
#include "session/checkpoint_verbs.h"
#include "session/session.h"
#include "telemetry/flight_record.h"

namespace {
std::atomic<std::int64_t> jump_seconds{0};
}

// These take the place of the C library's, also for the libraries that this program loads. Steady clocks are as they
// are.
extern "C" {
int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const auto result = static_cast<int>(::syscall(SYS_clock_gettime, clock, now));
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += jump_seconds;
  return result;
}

time_t time(time_t* into) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (into != nullptr) *into = now.tv_sec;
  return now.tv_sec;
}

int gettimeofday(timeval* into, void*) noexcept {
  timespec now{};
  const int result = clock_gettime(CLOCK_REALTIME, &now);
  *into = {now.tv_sec, now.tv_nsec / 1000};
  return result;
}
}

namespace spillway {
namespace {

namespace fs = std::filesystem;

void jump(std::int64_t years) { jump_seconds = years * 365 * 24 * 3600; }

// Another time after every step: before 1970, far ahead, and back.
class Jumping final : public RecordingObserver {
 public:
  Jumping(RunControl& control, std::int64_t stop) : control_(control), stop_(stop) {}
  void step(const StepRecord& record) override {
    RecordingObserver::step(record);
    constexpr std::array<std::int64_t, 5> years{60, -70, -71, -2, 3};
    jump(years[static_cast<std::size_t>(record.step) % years.size()]);
    if (record.step == stop_) control_.stop = 15;
  }

 private:
  RunControl& control_;
  std::int64_t stop_;
};

class FaultClock : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    golden::write_model(scratch_ / "model", golden::llama_of(2, 64, 600), "");
    golden::write_tokens(scratch_ / "tokens.npy", 3000, 600);
    options_.model = (scratch_ / "model").string();
    options_.data = {(scratch_ / "tokens.npy").string()};
    options_.max_steps = total_steps;
    options_.per_device_train_batch_size = 2;
    options_.max_seq_len = 32;
    options_.dtype = "f32";
    leave_one_choice_under_sanitizer(options_);
    options_.threads = 2;
    options_.page_size_bytes = 4096;
    options_.memory_bytes = std::int64_t{1} << 30;
    if (GetParam()) options_.memory_bytes = run_plan(options_).min_memory_bytes + (std::int64_t{1} << 20);
    options_.output_dir = (scratch_ / "usual").string();
    RecordingObserver observer;
    run_train(options_, observer);
    for (const StepRecord& step : observer.steps) usual_.push_back(step.loss);
    options_.output_dir = (scratch_ / "jumping").string();
    options_.save_steps = 1;
    options_.save_total_limit = 5;
  }
  void TearDown() override { jump(0); }

  void part(std::int64_t first, std::int64_t last) {
    RunControl control;
    Jumping observer(control, last);
    run_train(options_, observer, &control);
    ASSERT_FALSE(observer.steps.empty());
    EXPECT_EQ(observer.steps.front().step, first);
    EXPECT_EQ(observer.steps.back().step, last);
    for (const StepRecord& step : observer.steps)
      EXPECT_EQ(step.loss, usual_[static_cast<std::size_t>(step.step - 1)]) << "step " << step.step;
    EXPECT_NO_THROW(read_flight(scratch_ / "jumping/flight.bin"));
    expect_event_file_after_the_others();
  }

  // TensorBoard reads the files of a run by name.
  void expect_event_file_after_the_others() {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(scratch_ / "jumping/runs")) names.insert(entry.path().filename());
    ASSERT_EQ(names.size(), event_files_.size() + 1);
    for (const std::string& older : event_files_) EXPECT_LT(older, *names.rbegin());
    EXPECT_FALSE(event_files_.contains(*names.rbegin()));
    event_files_ = names;
  }

  static constexpr std::int64_t total_steps = 12;
  ScratchFolder scratch_;
  TrainOptions options_;
  std::vector<float> usual_;
  std::set<std::string> event_files_;
};

TEST_P(FaultClock, ARunGoesOnFromItsLatestCommitWhateverTheClockSays) {
  jump(-60);
  ASSERT_LT(std::chrono::system_clock::now().time_since_epoch().count(), 0) << "the clock is the one of this test";
  ASSERT_LT(std::time(nullptr), 0);
  part(1, 5);
  jump(-72);
  part(6, 7);
  const CheckpointReport report = verify_checkpoints(scratch_ / "jumping");
  EXPECT_TRUE(report.sound());
  ASSERT_EQ(report.rows.size(), 5U);
  // Of each part the last is made between the jump after its step and the next of this test.
  EXPECT_EQ(report.rows[0].step, 7);
  EXPECT_EQ(report.rows[2].step, 5);
  EXPECT_LT(report.rows[0].unix_seconds, 0);
  EXPECT_GT(report.rows[2].unix_seconds, 0);
  jump(40);
  part(8, 9);
  jump(-73);
  part(10, total_steps);
  EXPECT_TRUE(scratch_.text_of("jumping/model.safetensors") == scratch_.text_of("usual/model.safetensors"));
  jump(-3);
  RecordingObserver again;
  run_train(options_, again);
  EXPECT_TRUE(again.steps.empty()) << "it is finished";
}

INSTANTIATE_TEST_SUITE_P(Budgets, FaultClock, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& test) { return test.param ? "OnDisk" : "InMemory"; });

}  // namespace
}  // namespace spillway
