// The command of a run that is finished, given again: by a queue that starts jobs anew, or by a user. Also when the
// first one was killed at its end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "golden/model_folder.h"
#include "one_choice.h"
#include "recording_observer.h"
#include "scratch_folder.h"
#include "session/portable.h"
#include "session/run_control.h"
#include "session/session.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class FaultFinished : public testing::Test {
 protected:
  void SetUp() override {
    golden::write_model(scratch_ / "model", golden::llama_of(1, 32, 300), "");
    golden::write_tokens(scratch_ / "tokens.npy", 600, 300);
    golden::write_tokens(scratch_ / "others.npy", 700, 300);
    options_.model = (scratch_ / "model").string();
    options_.data = {(scratch_ / "tokens.npy").string()};
    options_.output_dir = (scratch_ / "out").string();
    options_.max_steps = steps;
    options_.per_device_train_batch_size = 2;
    options_.max_seq_len = 16;
    options_.dtype = "f32";
    leave_one_choice_under_sanitizer(options_);
    options_.threads = 1;
    options_.memory_bytes = std::int64_t{1} << 30;
    options_.save_steps = 1;
  }

  void run(const TrainOptions& options) {
    RecordingObserver observer;
    run_train(options, observer);
    EXPECT_FALSE(observer.end.output_dir.empty());
  }

  // Stops after its second step, with a commit.
  void run_in_part(const TrainOptions& options) {
    struct Stop final : RecordingObserver {
      void step(const StepRecord& record) override {
        if (record.step == 2) control.stop = 15;
      }
      RunControl control;
    } observer;
    run_train(options, observer, &observer.control);
    EXPECT_TRUE(fs::exists(fs::path(options.output_dir) / "store.json"));
  }

  // Nothing is done, and one sentence says so.
  void expect_finished(const TrainOptions& options) {
    RecordingObserver observer;
    run_train(options, observer);
    ASSERT_EQ(observer.notes.size(), 1U);
    EXPECT_THAT(observer.notes.front(), AllOf(HasSubstr(options.output_dir), HasSubstr("finished: 4 steps")));
    EXPECT_TRUE(observer.steps.empty());
  }

  std::string refusal(const TrainOptions& options) {
    try {
      RecordingObserver observer;
      run_train(options, observer);
    } catch (const UserError& error) {
      return error.what();
    }
    return "nothing was refused";
  }

  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(scratch_ / "out")) {
      const std::string name = fs::relative(entry.path(), scratch_.path()).string();
      if (entry.is_regular_file()) files[name] = scratch_.text_of(name);
    }
    return files;
  }

  void copy(const std::string& from, const std::string& to) const {
    fs::copy_file(scratch_ / from, scratch_ / to, fs::copy_options::overwrite_existing);
  }

  // What a kill at the end of a run leaves: commits, and of the rest of a whole run in `whole` these files.
  void run_killed_at_its_end(const std::vector<std::string>& of_the_end) {
    TrainOptions whole = options_;
    whole.output_dir = (scratch_ / "whole").string();
    run(whole);
    run_in_part(options_);
    for (const std::string& name : of_the_end) copy("whole/" + name, "out/" + name);
  }

  static constexpr std::int64_t steps = 4;
  ScratchFolder scratch_;
  TrainOptions options_;
};

TEST_F(FaultFinished, TheSameCommandDoesNothing) {
  run(options_);
  const auto before = files();
  expect_finished(options_);
  options_.memory_bytes = std::int64_t{1} << 29;  // what changes no bit may differ
  options_.threads = 2;
  options_.export_steps = 2;
  expect_finished(options_);
  options_.max_steps = -1;  // as many, said otherwise: 37 windows, 2 a step
  options_.num_train_epochs = 7.5 / 37.0;
  expect_finished(options_);
  EXPECT_TRUE(files() == before);
}

TEST_F(FaultFinished, AnotherRunIsRefusedWithWhatDiffersAndTheModelIsUntouched) {
  run(options_);
  const auto before = files();
  const auto refused = [&](const auto& change, const std::string& words) {
    TrainOptions options = options_;
    change(options);
    EXPECT_THAT(refusal(options), AllOf(HasSubstr(words), HasSubstr("name another")));
  };
  refused([](TrainOptions& o) { o.learning_rate = 1e-3; }, "learning_rate is 0.001, and was 5e-05");
  refused([](TrainOptions& o) { o.seed = 7; }, "seed is 7, and was 42");
  refused([&](TrainOptions& o) { o.data = {(scratch_ / "others.npy").string()}; }, "data is 700 tokens");
  refused([&](TrainOptions& o) { o.model = (scratch_ / "out").string(); }, "model is");
  refused([](TrainOptions& o) { o.resume_from_checkpoint = "none"; }, "already holds");
  refused([](TrainOptions& o) { o.max_steps = 3; }, "has made 4 steps, and 3 are asked for");
  EXPECT_TRUE(files() == before);
}

// Such a run reads no data, so these are not what is wrong.
TEST_F(FaultFinished, NoStepsAreTooFewForARunThatHasMadeSome) {
  TrainOptions none = options_;
  none.max_steps = 0;
  run_in_part(options_);
  EXPECT_THAT(refusal(none), HasSubstr("max_steps: the run is to have 0 steps, and has made 2 already"));
  run(options_);
  EXPECT_THAT(refusal(none), HasSubstr("has made 4 steps, and 0 are asked for"));
}

TEST_F(FaultFinished, TooFewStepsForACheckpointLeaveNothingInAnotherFolder) {
  options_.export_steps = 2;
  run_in_part(options_);
  TrainOptions few = options_;
  few.resume_from_checkpoint = (scratch_ / "out/checkpoint-2").string();
  few.output_dir = (scratch_ / "other").string();
  few.max_steps = 1;
  EXPECT_THAT(refusal(few), HasSubstr("max_steps: the run is to have 1 steps, and has made 2 already"));
  few.resume_from_checkpoint = "auto";
  few.max_steps = steps;
  run(few);
}

TEST_F(FaultFinished, MoreStepsGoOnFromAnExportElsewhere) {
  options_.export_steps = steps;
  run(options_);
  options_.max_steps = 6;
  const std::string export_folder = (scratch_ / "out/checkpoint-4").string();
  EXPECT_THAT(refusal(options_), AllOf(HasSubstr("resume_from_checkpoint: " + export_folder), HasSubstr("output_dir")));
  options_.resume_from_checkpoint = export_folder;
  options_.output_dir = (scratch_ / "longer").string();
  RecordingObserver observer;
  run_train(options_, observer);
  EXPECT_EQ(observer.steps.size(), 2U);

  options_.resume_from_checkpoint = "auto";
  options_.max_steps = 8;
  EXPECT_THAT(refusal(options_), HasSubstr("export_steps")) << "here is none that has all steps";
}

// Or a kill between the two would lose the export: nothing goes on from a folder with a whole model.
TEST_F(FaultFinished, ExportsAreWholeBeforeTheModelIs) {
  options_.export_steps = steps;
  struct AtExport final : RecordingObserver {
    explicit AtExport(fs::path model_file) : model(std::move(model_file)) {}
    void note(std::string_view sentence) override {
      if (!sentence.starts_with("exported step 4")) return;
      told = true;
      model_is_there = fs::exists(model);
    }
    fs::path model;
    bool told = false;
    bool model_is_there = false;
  } observer(scratch_ / "out/model.safetensors");
  run_train(options_, observer);
  EXPECT_TRUE(observer.told);
  EXPECT_FALSE(observer.model_is_there);
}

TEST_F(FaultFinished, AKillBeforeTheModelIsWholeGoesOnToTheSameModel) {
  run_killed_at_its_end({std::string(run_state_name), "config.json"});
  copy("whole/model.safetensors", "out/model-00001-of-00002.safetensors");  // a shard of one with an index to come
  run(options_);
  EXPECT_EQ(scratch_.text_of("out/model.safetensors"), scratch_.text_of("whole/model.safetensors"));
  EXPECT_FALSE(fs::exists(scratch_ / "out/store.json"));
}

TEST_F(FaultFinished, AKillAfterTheModelLeavesCommitsThatTheNextRemoves) {
  run_killed_at_its_end({std::string(run_state_name), "config.json", "model.safetensors"});
  expect_finished(options_);
  for (const auto& [name, text] : files()) EXPECT_THAT(name, testing::Not(testing::EndsWith(".slots")));
  EXPECT_FALSE(fs::exists(scratch_ / "out/store.json"));
  EXPECT_EQ(scratch_.text_of("out/model.safetensors"), scratch_.text_of("whole/model.safetensors"));
  expect_finished(options_);
}

TEST_F(FaultFinished, AModelThatNoRecordSpeaksOfIsInTheWay) {
  run_killed_at_its_end({"model.safetensors"});
  const auto before = files();
  EXPECT_THAT(refusal(options_), HasSubstr("already holds model.safetensors"));
  EXPECT_TRUE(files() == before);
}

TEST_F(FaultFinished, ARecordThatCannotBeReadIsNamed) {
  run(options_);
  scratch_.file("out/" + std::string(run_state_name), "{");
  EXPECT_THAT(refusal(options_), HasSubstr(run_state_name));
}

}  // namespace
}  // namespace spillway
