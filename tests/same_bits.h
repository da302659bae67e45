// Runs of one small model on the same tokens, whose losses and written weights must be the same bits whatever the
// budget, the memories, the schedule and the timing.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "golden/model_folder.h"
#include "recording_observer.h"
#include "scratch_folder.h"
#include "session/session.h"

namespace spillway {

// Ragged on purpose: several pieces and vocabulary tiles, heads that share keys.
inline nlohmann::json ragged_llama(int layers) {
  auto config = nlohmann::json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "vocab_size": 2000, "hidden_size": 96, "intermediate_size": 200, "num_attention_heads": 6, "num_key_value_heads": 2,
    "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "tie_word_embeddings": false})");
  config["num_hidden_layers"] = layers;
  return config;
}

inline nlohmann::json ragged_gpt2(int layers) {
  auto config = nlohmann::json::parse(R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
    "vocab_size": 1901, "n_embd": 80, "n_head": 5, "n_positions": 192, "layer_norm_epsilon": 1e-5,
    "activation_function": "gelu_new", "tie_word_embeddings": true})");
  config["n_layer"] = layers;
  return config;
}

struct Case {
  std::string name;
  nlohmann::json config;
  std::string dtype;
  std::int64_t accumulation = 1;
  double max_grad_norm = 0;
  std::string moments = "f32";
};

inline void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }
inline std::string case_name(const testing::TestParamInfo<Case>& test) { return test.param.name; }

class SameBits {
 protected:
  struct Outcome {
    std::vector<StepRecord> steps;
    std::vector<float> numbers;  // losses, norms and evaluations
    std::size_t weights = 0;     // a hash of the file
  };

  void use(const Case& test) {
    use(test.config);
    options_.gradient_accumulation_steps = test.accumulation;
    options_.max_grad_norm = test.max_grad_norm;
    options_.dtype = test.dtype;
    options_.moments = test.moments;
  }

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
    Outcome outcome{observer.steps, {}, {}};
    disk_bytes_ = 0;
    for (const StepRecord& step : outcome.steps) {
      outcome.numbers.push_back(step.loss);
      outcome.numbers.push_back(step.grad_norm);
      outcome.numbers.push_back(static_cast<float>(step.eval_loss.value_or(0)));
      disk_bytes_ += step.disk_read_bytes + step.disk_write_bytes;
    }
    outcome.weights = weights_in(options.output_dir);
    return outcome;
  }

  // Not the bytes: what a test keeps in memory counts against the budgets of the runs in its process.
  std::size_t weights_in(const std::filesystem::path& folder) const {
    const std::string bytes = scratch_.text_of(folder / "model.safetensors");
    EXPECT_FALSE(bytes.empty());
    return std::hash<std::string>{}(bytes);
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
