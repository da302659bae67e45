// What a run tells other tools is what metrics.jsonl says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "base/error.h"
#include "golden/model_folder.h"
#include "http_get.h"
#include "recording_observer.h"
#include "scratch_folder.h"
#include "session/session.h"
#include "stop_after.h"

namespace spillway {
namespace {

class Reported : public testing::Test {
 protected:
  void SetUp() override {
    const auto config = nlohmann::json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "vocab_size": 500, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
      "tie_word_embeddings": false})");
    golden::write_model(scratch_ / "model", config, "");
    golden::write_tokens(scratch_ / "tokens.npy", 4000, 500);
    options_.model = (scratch_ / "model").string();
    options_.data = {(scratch_ / "tokens.npy").string()};
    options_.output_dir = (scratch_ / "out").string();
    options_.max_steps = 6;
    options_.per_device_train_batch_size = 2;
    options_.gradient_accumulation_steps = 2;
    options_.max_seq_len = 64;
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
  StopAfter stopper(control, 5);
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

TEST_F(Reported, AFolderThatCannotBeWrittenIsToldBeforeAnythingIsLoaded) {
  options_.logging_dir = (scratch_ / "tokens.npy/events").string();
  RecordingObserver observer;
  try {
    run_train(options_, observer);
    ADD_FAILURE() << "accepted";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("logging_dir: " + options_.logging_dir + " cannot be written"));
  }
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "out/metrics.jsonl"));
}

TEST_F(Reported, AFolderInTheOutputFolderThatCannotBeWrittenIsToldAsItsOwn) {
  std::filesystem::create_directory(scratch_ / "out");
  scratch_.file("out/runs", "no folder");
  RecordingObserver observer;
  try {
    run_train(options_, observer);
    ADD_FAILURE() << "accepted";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("output_dir: " + (scratch_ / "out/runs").string() + " cannot be"));
  }
}

// Asks the run for its numbers while it goes on.
class Scraper : public RecordingObserver {
 public:
  void note(std::string_view sentence) override {
    const std::string_view begin = "metrics are at http://127.0.0.1:";
    if (sentence.starts_with(begin)) port_ = std::atoi(std::string(sentence.substr(begin.size())).c_str());
  }
  void step(const StepRecord& record) override {
    RecordingObserver::step(record);
    if (record.step == 6) answer = http_get(port_, "/metrics");
  }

  // Of the step before, whose numbers were there: this observer hears of a step first.
  double sum_of(const std::string& name) const {
    double sum = 0;
    std::istringstream lines(answer);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with(name + ' ') || line.starts_with(name + '{')) sum += std::stod(line.substr(line.rfind(' ')));
    return sum;
  }

  std::string answer;

 private:
  std::int64_t port_ = 0;
};

TEST_F(Reported, TheEndpointServesTheNumbersOfTheRunAndChangesNoBit) {
  const auto at_the_smallest_budget = [this] {
    options_.memory_bytes = std::int64_t{1} << 40;
    options_.memory_bytes = run_plan(options_).min_memory_bytes;
  };
  at_the_smallest_budget();
  RecordingObserver dark;
  run_train(options_, dark);
  options_.output_dir = (scratch_ / "served").string();
  options_.metrics_address = "127.0.0.1:0";
  at_the_smallest_budget();  // which has room for the endpoint
  Scraper scraper;
  run_train(options_, scraper);
  ASSERT_EQ(scraper.steps.size(), 6U);
  double read = 0;
  double written = 0;
  double stalled = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    read += static_cast<double>(scraper.steps[i].disk_read_bytes);
    written += static_cast<double>(scraper.steps[i].disk_write_bytes);
    stalled += scraper.steps[i].stall_seconds;
  }
  EXPECT_GT(read, 0) << "at the smallest budget something moves";
  EXPECT_EQ(scraper.sum_of("spillway_disk_read_bytes_total"), read);
  EXPECT_EQ(scraper.sum_of("spillway_disk_write_bytes_total"), written);
  EXPECT_NEAR(scraper.sum_of("spillway_wait_seconds_total"), stalled, 1e-6);
  EXPECT_EQ(scraper.sum_of("spillway_step"), 5);
  EXPECT_EQ(scraper.sum_of("spillway_healthy"), 1);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(scraper.steps[i].loss, dark.steps[i].loss);
  EXPECT_EQ(scratch_.text_of("out/model.safetensors"), scratch_.text_of("served/model.safetensors"));
}

TEST_F(Reported, ABadAddressEndsTheRunBeforeItStarts) {
  options_.metrics_address = "not.an.address:1";
  RecordingObserver observer;
  EXPECT_THROW(run_train(options_, observer), UserError);
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "out"));
}

}  // namespace
}  // namespace spillway
