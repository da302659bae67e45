// Runs of one small model on the same tokens, whose losses and written weights must be the same bits whatever the
// budget, the memories, the schedule and the timing.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "golden/model_folder.h"
#include "recording_observer.h"
#include "scratch_folder.h"
#include "session/session.h"

namespace spillway {

class SameBits {
 protected:
  struct Outcome {
    std::vector<float> numbers;  // losses, norms and evaluations
    std::string weights;
  };

  // The model, the tokens, and the options that runs have unless they say otherwise: a length that no block divides,
  // pieces of one reduction block, and nothing recomputed, so that what moves does not depend on a machine's rates.
  void use(const nlohmann::json& config) {
    golden::write_model(scratch_ / "model", config, "");
    golden::write_tokens(scratch_ / "tokens.npy", 2000, config["vocab_size"]);
    options_.model = (scratch_ / "model").string();
    options_.data = {(scratch_ / "tokens.npy").string()};
    options_.eval_data = options_.data;
    options_.eval_steps = 2;
    options_.max_steps = 3;
    options_.per_device_train_batch_size = 2;
    options_.max_seq_len = 70;
    options_.learning_rate = 1e-3;
    options_.weight_decay = 0.1;
    options_.dtype = "f32";
    options_.threads = 2;
    options_.piece_elements = 65536;
    options_.tile_elements = 131072;  // two blocks
    options_.page_size_bytes = 16384;
    options_.poison = true;
    options_.order = "layer";
    options_.recompute = "none";
  }

  // In a folder of its own, unless `changed` has one.
  Outcome run(const TrainOptions& changed) {
    TrainOptions options = changed;
    const std::string folder = "out" + std::to_string(runs_++);
    if (options.output_dir.empty()) options.output_dir = (scratch_ / folder).string();
    RecordingObserver observer;
    run_train(options, observer);
    Outcome outcome;
    disk_bytes_ = 0;
    for (const StepRecord& step : observer.steps) {
      outcome.numbers.push_back(step.loss);
      outcome.numbers.push_back(step.grad_norm);
      outcome.numbers.push_back(static_cast<float>(step.eval_loss.value_or(0)));
      disk_bytes_ += step.disk_read_bytes + step.disk_write_bytes;
    }
    outcome.weights = scratch_.text_of(options.output_dir + "/model.safetensors");
    return outcome;
  }

  void expect_same(const TrainOptions& changed, const Outcome& expected, const std::string& what) {
    const Outcome outcome = run(changed);
    EXPECT_EQ(outcome.numbers, expected.numbers) << what;
    EXPECT_TRUE(outcome.weights == expected.weights) << what << ": weights differ";
  }

  ScratchFolder scratch_;
  TrainOptions options_;
  int runs_ = 0;
  std::int64_t disk_bytes_ = 0;  // of all steps of the latest run
};

}  // namespace spillway
