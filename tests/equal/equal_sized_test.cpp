// The same bits at the size that bench/ measures: gpt2-124m in pages, pieces and tiles of the usual sizes, with each
// policy, kind of recomputing and way of clipping somewhere among the runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/bytes.h"
#include "same_bits.h"

namespace spillway {
namespace {

class Sized : public SameBits, public testing::Test {
 protected:
  void SetUp() override {
    const auto config = nlohmann::json::parse(R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
      "vocab_size": 50257, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
      "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "tie_word_embeddings": true})");
    use(config);
    const TrainOptions usual;
    options_.eval_data.clear();
    options_.eval_steps = 0;
    options_.max_steps = 2;
    options_.max_seq_len = 128;
    options_.gradient_accumulation_steps = 2;
    options_.dtype = "bf16";
    options_.piece_elements = usual.piece_elements;
    options_.tile_elements = usual.tile_elements;
    options_.page_size_bytes = usual.page_size_bytes;
    options_.poison = false;
    options_.order = "auto";
    options_.recompute = "auto";
  }

  // Its folder, half a gigabyte, is not kept.
  Outcome run_once(TrainOptions options) {
    options.output_dir = (scratch_ / "run").string();
    Outcome outcome = run(options);
    std::filesystem::remove_all(options.output_dir);
    return outcome;
  }

  void expect_same_at(double share, const std::string& policy, const std::string& recompute, const std::string& mode) {
    TrainOptions options = options_;
    options.policy = policy;
    options.recompute = recompute;
    options.clip_mode = mode;
    const PlanReport report = run_plan(options);
    const auto wanted = static_cast<std::int64_t>(share * static_cast<double>(report.in_memory_bytes));
    options.memory_bytes = std::max(report.min_memory_bytes + 32 * mib, wanted);  // each way of clipping finds room
    const std::string what = policy + ", recompute " + recompute + ", " + mode;
    const Outcome outcome = run_once(options);
    EXPECT_GT(disk_bytes_, 0) << what;
    for (const StepRecord& step : outcome.steps) {
      EXPECT_EQ(step.clip, mode == "speculative" && step.clipped ? "reverted" : mode) << what;
    }
    EXPECT_EQ(outcome.numbers, expected_.numbers) << what;
    EXPECT_EQ(outcome.weights, expected_.weights) << what << ": weights differ";
  }

  Outcome expected_;
};

TEST_F(Sized, WhateverTheBudgetThePolicyAndTheWayOfClipping) {
  options_.max_grad_norm = 1e9;
  options_.clip_mode = "after";
  options_.memory_bytes = run_plan(options_).in_memory_bytes;
  const std::vector<StepRecord> unclipped = run_once(options_).steps;
  const float first = unclipped.at(0).grad_norm;
  const float second = unclipped.at(1).grad_norm;
  options_.max_grad_norm = (first + second) / 2;  // one of the steps clips
  expected_ = run_once(options_);
  ASSERT_NE(expected_.steps.at(0).clipped, expected_.steps.at(1).clipped) << first << " and " << second;
  expect_same_at(0.12, "auto", "auto", "after");
  expect_same_at(0.25, "lru", "attention", "speculative");
  expect_same_at(0.25, "belady", "none", "deferred");
  expect_same_at(0, "lifetime", "block", "deferred");
  expect_same_at(0.25, "everything-on-disk", "cheap", "speculative");
}

// In virtual time, of a machine whose disk the step waits for.
TEST_F(Sized, NoPolicyIsFasterThanWhatIsChosenForAStepThatClips) {
  options_.max_seq_len = 1024;
  options_.per_device_train_batch_size = 1;
  options_.gradient_accumulation_steps = 1;
  options_.save_steps = -1;
  options_.max_grad_norm = 1;
  std::ofstream(scratch_ / "machine.json")
      << R"({"threads": 2, "memory_bytes": 24000000000, "bf16_flops_per_second": 4e11,
    "memory_bytes_per_second": [3e10, 5e10], "disks": [{"read_bytes_per_second": 3e9, "write_bytes_per_second": 3e9,
    "mixed_bytes_per_second": 3e9}]})";
  options_.machine = (scratch_ / "machine.json").string();
  options_.memory_bytes = 500 * mib;
  const auto seconds = [&](const std::string& policy, const std::string& mode) {
    TrainOptions options = options_;
    options.policy = policy;
    options.clip_mode = mode;
    return run_plan(options, true).prediction->step_seconds;
  };
  const double chosen = seconds("auto", "auto");
  for (const Policy policy : all_policies) {
    EXPECT_LE(chosen, seconds(std::string(name_of(policy)), "auto") * 1.011) << name_of(policy);
  }
  for (const std::string mode : {"after", "deferred", "speculative"}) {
    EXPECT_LE(chosen, seconds("auto", mode) * 1.011) << mode;
  }
}

}  // namespace
}  // namespace spillway
