// The same bits at the size that bench/ measures: gpt2-124m in pages, pieces and tiles of the usual sizes, with each
// policy, kind of recomputing, way of clipping and hostile setting somewhere among the runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string_view>

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

  // A run that updates after backward, in memory; one of its two steps clips.
  void expect_one_step_to_clip() {
    options_.max_grad_norm = 1e9;
    options_.clip_mode = "after";
    options_.memory_bytes = run_plan(options_).in_memory_bytes;
    const std::vector<StepRecord> unclipped = run_once(options_).steps;
    const float first = unclipped.at(0).grad_norm;
    const float second = unclipped.at(1).grad_norm;
    options_.max_grad_norm = (first + second) / 2;
    expected_ = run_once(options_);
    ASSERT_NE(expected_.steps.at(0).clipped, expected_.steps.at(1).clipped) << first << " and " << second;
  }

  void make_hostile(TrainOptions& options, std::string_view setting) {
    if (setting == "requests of 4 KiB, one thread") options.io_request_size_bytes = 4096, options.threads = 1;
    if (setting == "without io_uring") options.allow_uring = false;
    if (setting == "a slow disk") options.disk_bytes_per_second = 1'000'000'000;
    if (setting == "pages that are not huge") options.huge_pages = false;
    if (setting == "two disks") {
      options.spill_dir = {(scratch_ / "disk0").string(), (scratch_ / "disk1").string()};
      for (const std::string& directory : options.spill_dir) std::filesystem::create_directories(directory);
    }
  }

  void expect_same_at(double share, std::string_view policy, std::string_view recompute, std::string_view mode,
                      std::string_view setting) {
    TrainOptions options = options_;
    options.policy = policy;
    options.recompute = recompute;
    options.clip_mode = mode;
    make_hostile(options, setting);
    const PlanReport report = run_plan(options);
    const auto wanted = static_cast<std::int64_t>(share * static_cast<double>(report.in_memory_bytes));
    options.memory_bytes = std::max(report.min_memory_bytes + 32 * mib, wanted);  // each way of clipping finds room
    const std::string what =
        fmt::format("{:.2f} of the memory, {}, recompute {}, {}, {}", share, policy, recompute, mode, setting);
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

unsigned number_of(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? 0 : static_cast<unsigned>(std::stoul(text));
}

constexpr std::array settings{
    "", "requests of 4 KiB, one thread", "without io_uring", "a slow disk", "pages that are not huge", "two disks"};

// Then drawn ones, as many as SPILLWAY_DRAWS says, from SPILLWAY_SEED: scripts/equality-campaign.
TEST_F(Sized, WhateverTheBudgetThePolicyTheWayOfClippingAndTheSetting) {
  ASSERT_NO_FATAL_FAILURE(expect_one_step_to_clip());
  expect_same_at(0.12, "lru", "auto", "after", settings[0]);
  expect_same_at(0.5, "auto", "attention", "after", settings[1]);
  expect_same_at(0.25, "belady", "none", "deferred", settings[2]);
  expect_same_at(0.25, "everything-on-disk", "cheap", "speculative", settings[3]);
  expect_same_at(0, "lifetime", "block", "deferred", settings[4]);
  expect_same_at(0.12, "farthest", "none", "speculative", settings[5]);
  const unsigned seed = number_of("SPILLWAY_SEED");
  std::mt19937 random(seed);
  const auto one_of = [&](const auto& all) {
    return all[std::uniform_int_distribution<std::size_t>(0, std::size(all) - 1)(random)];
  };
  for (unsigned draw = 0; draw < number_of("SPILLWAY_DRAWS") && !HasFailure(); ++draw) {
    SCOPED_TRACE(fmt::format("seed {}, draw {}", seed, draw));
    const double share = one_of(std::array{0.0, 0.12, 0.25, 0.5});
    const std::string_view policy = name_of(one_of(all_policies));
    const std::string_view recompute = one_of(std::array{"auto", "none", "cheap", "attention", "block"});
    const std::string_view mode = one_of(std::array{"after", "deferred", "speculative"});
    expect_same_at(share, policy, recompute, mode, one_of(settings));
  }
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
