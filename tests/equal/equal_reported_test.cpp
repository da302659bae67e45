// What a run tells other tools is what metrics.jsonl says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "golden/model_folder.h"
#include "recording_observer.h"
#include "scratch_folder.h"
#include "session/session.h"

namespace spillway {
namespace {

class Reported : public testing::Test {
 protected:
  void SetUp() override {
    const auto config = nlohmann::json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "vocab_size": 200, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
      "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
      "tie_word_embeddings": false})");
    golden::write_model(scratch_ / "model", config, "");
    golden::write_tokens(scratch_ / "tokens.npy", 2000, 200);
    options_.model = (scratch_ / "model").string();
    options_.data = {(scratch_ / "tokens.npy").string()};
    options_.output_dir = (scratch_ / "out").string();
    options_.max_steps = 6;
    options_.per_device_train_batch_size = 2;
    options_.max_seq_len = 32;
    options_.dtype = "f32";
    options_.threads = 2;
    options_.memory_bytes = std::int64_t{1} << 28;
    options_.page_size_bytes = 16384;
  }

  // By the reader in Python, which knows nothing of ours.
  int event_files(const std::filesystem::path& folder) const {
    const std::string script = SPILLWAY_SOURCE_DIR "/tests/scripts/event_files.py";
    return std::system(
        ("python3 " + script + " " + folder.string() + " " + options_.output_dir + "/metrics.jsonl").c_str());
  }

  ScratchFolder scratch_;
  TrainOptions options_;
};

// Ends the run when a step is done, as a signal does.
class Stopper : public RecordingObserver {
 public:
  Stopper(RunControl& control, std::int64_t step) : control_(control), step_(step) {}
  void step(const StepRecord& record) override {
    RecordingObserver::step(record);
    if (record.step == step_) control_.stop = 1;
  }

 private:
  RunControl& control_;
  std::int64_t step_;
};

TEST_F(Reported, EventFilesHoldTheNumbersOfTheRun) {
  options_.eval_data = options_.data;
  options_.eval_steps = 3;
  RecordingObserver observer;
  run_train(options_, observer);
  EXPECT_EQ(event_files(scratch_ / "out/runs"), 0);
}

// The first run gets to step 5, its last export is of step 4: step 5 is made twice and counts once.
TEST_F(Reported, AResumedRunTakesBackTheStepsItMakesAgain) {
  options_.export_steps = 2;
  options_.logging_dir = (scratch_ / "events").string();
  RunControl control;
  Stopper stopper(control, 5);
  run_train(options_, stopper, &control);
  ASSERT_EQ(stopper.steps.size(), 5U);
  options_.resume_from_checkpoint = (scratch_ / "out/checkpoint-4").string();
  RecordingObserver observer;
  run_train(options_, observer);
  ASSERT_EQ(observer.steps.front().step, 5);
  EXPECT_EQ(event_files(scratch_ / "events"), 0);
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "out/runs"));
}

TEST_F(Reported, NoneWritesNoEventFiles) {
  options_.report_to = "none";
  RecordingObserver observer;
  run_train(options_, observer);
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "out/runs"));
}

}  // namespace
}  // namespace spillway
