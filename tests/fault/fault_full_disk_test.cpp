// A disk that is really full, at any moment of a run: one sentence, the last commit intact, and after space was freed
// the same command goes on to the bits of a run that always had space.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "golden/model_folder.h"
#include "one_choice.h"
#include "recording_observer.h"
#include "scratch_folder.h"
#include "session/checkpoint_verbs.h"
#include "session/run_folder.h"
#include "session/session.h"
#include "small_file_system.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using testing::AnyOf;
using testing::HasSubstr;

constexpr std::int64_t kib = 1024;

// Does something after a step, and remembers what was durable.
class After final : public RecordingObserver {
 public:
  After(std::int64_t step, std::function<void()> what) : step_(step), what_(std::move(what)) {}
  void step(const StepRecord& record) override {
    RecordingObserver::step(record);
    durable_step = record.committed_step.value_or(durable_step);
    if (record.step == step_) what_();
  }
  std::int64_t durable_step = 0;

 private:
  std::int64_t step_;
  std::function<void()> what_;
};

// Where the state lies in memory, or all of it on disk.
class FaultFullDisk : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!disk_.mounted()) GTEST_SKIP() << "mounting a small file system is not allowed here: " << disk_.why_not();
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
    options_.save_steps = 1;
    options_.export_steps = export_steps;
    options_.output_dir = (scratch_ / "whole").string();
    options_.memory_bytes = std::int64_t{1} << 30;
    if (GetParam()) options_.memory_bytes = run_plan(options_).min_memory_bytes + (std::int64_t{1} << 20);
    RecordingObserver observer;
    run_train(options_, observer);
    whole_ = losses_of(observer);
    options_.output_dir = (scratch_ / "small").string();
  }

  static std::map<std::int64_t, float> losses_of(const RecordingObserver& observer) {
    std::map<std::int64_t, float> losses;
    for (const StepRecord& step : observer.steps) losses[step.step] = step.loss;
    return losses;
  }

  // Runs until the disk, filled by `fill` after a step, stops it: in one sentence, with every commit intact that was
  // ever durable.
  void run_until_full(std::int64_t step, const std::function<void()>& fill) {
    After observer(step, fill);
    try {
      run_train(options_, observer);
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::device) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(options_.output_dir));
      EXPECT_THAT(error.what(), AnyOf(HasSubstr("No space left on device"), HasSubstr("are free there")));
      EXPECT_THAT(error.what(), AnyOf(HasSubstr("free some space"), HasSubstr("with that mended")));
      EXPECT_THAT(error.what(), testing::Not(HasSubstr("\n")));
    }
    EXPECT_GE(observer.durable_step, 1);
    expect_sound(observer.durable_step);
  }

  void expect_sound(std::int64_t durable_step) {
    const CheckpointReport report = verify_checkpoints(options_.output_dir);
    EXPECT_TRUE(report.sound());
    ASSERT_FALSE(report.rows.empty());
    EXPECT_GE(report.rows.front().step, durable_step);
  }

  // The same command, with space again.
  void run_to_the_end() {
    disk_.free_again();
    RecordingObserver observer;
    run_train(options_, observer);
    for (const auto& [step, loss] : losses_of(observer)) EXPECT_EQ(loss, whole_.at(step)) << "step " << step;
    EXPECT_EQ(last_recorded_step(options_.output_dir), total_steps);
    for (const std::string name : {"model.safetensors", "checkpoint-9/optimizer.safetensors"})
      EXPECT_TRUE(scratch_.text_of("small/" + name) == scratch_.text_of("whole/" + name)) << name;
    for (const auto& entry : fs::directory_iterator(options_.output_dir))
      EXPECT_THAT(entry.path().string(), testing::Not(AnyOf(HasSubstr(".slots"), HasSubstr("incomplete"))));
  }

  static constexpr std::int64_t total_steps = 12;
  static constexpr std::int64_t export_steps = 3;
  ScratchFolder scratch_;
  const SmallFileSystem disk_{scratch_ / "small", std::int64_t{64} << 20};
  TrainOptions options_;
  std::map<std::int64_t, float> whole_;
};

TEST_P(FaultFullDisk, DuringAnExport) {
  run_until_full(2, [&] { disk_.fill_but(300 * kib); });  // a record needs 1 KiB, an export 1.5 MiB
  EXPECT_FALSE(fs::exists(scratch_ / "small/checkpoint-3"));
  run_to_the_end();
}

TEST_P(FaultFullDisk, WithoutRoomForARecord) {
  run_until_full(4, [&] { disk_.fill_but(0); });
  run_to_the_end();
}

TEST_P(FaultFullDisk, WhileTheModelIsWritten) {
  options_.export_steps = 0;
  run_until_full(total_steps, [&] { disk_.fill_but(300 * kib); });
  EXPECT_FALSE(fs::exists(scratch_ / "small/model.safetensors"));
  disk_.free_again();
  RecordingObserver observer;
  run_train(options_, observer);
  EXPECT_TRUE(scratch_.text_of("small/model.safetensors") == scratch_.text_of("whole/model.safetensors"));
}

TEST_P(FaultFullDisk, BeforeARunAndBeforeItGoesOn) {
  const auto refused = [&] {
    disk_.fill_but(0);
    RecordingObserver observer;
    EXPECT_THROW(run_train(options_, observer), DeviceError);
    EXPECT_TRUE(observer.steps.empty());
    disk_.free_again();
  };
  refused();
  RunControl control;
  After observer(4, [&] { control.stop = 15; });
  run_train(options_, observer, &control);
  expect_sound(4);
  refused();
  expect_sound(4);
  run_to_the_end();
}

// Else a disk that is too small for the run would stay full because of it. With most room that is refused there is
// enough for the slots.
TEST_P(FaultFullDisk, ARefusedRunKeepsNothingReserved) {
  options_.export_steps = 0;
  int refused = 0;
  RecordingObserver observer;
  for (std::int64_t room = 8192 * kib; observer.steps.empty(); room += 512 * kib) {
    disk_.free_again();
    disk_.fill_but(room);
    try {
      run_train(options_, observer);
    } catch (const DeviceError& error) {
      ASSERT_TRUE(observer.steps.empty()) << "refused too late: " << error.what();
      EXPECT_THAT(error.what(), HasSubstr("free some space"));
      ++refused;
      for (const auto& entry : fs::directory_iterator(options_.output_dir))
        EXPECT_THAT(entry.path().string(), testing::Not(HasSubstr(".slots"))) << room;
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_EQ(losses_of(observer), whole_);
}

INSTANTIATE_TEST_SUITE_P(Budgets, FaultFullDisk, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& test) { return test.param ? "OnDisk" : "InMemory"; });

}  // namespace
}  // namespace spillway
