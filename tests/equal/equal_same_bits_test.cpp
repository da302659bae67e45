// Promise 2: losses and written weights are the same bits whatever the budget, the threads and the timing; and promise
// 1: what a plan says fits, fits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <fstream>

#include "base/bytes.h"
#include "base/error.h"
#include "one_choice.h"
#include "same_bits.h"
#include "session/setup.h"
#include "under_sanitizer.h"

namespace spillway {
namespace {

class EachSameBits : public SameBits, public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    use(GetParam());
    leave_one_choice_under_sanitizer(options_);
  }

  // Two spill directories, of which one gets twice the slots of the other.
  TrainOptions on_two_disks(TrainOptions options) const {
    for (const char* const name : {"disk", "disk 2"}) {
      std::filesystem::create_directory(scratch_ / name);
      options.spill_dir.push_back((scratch_ / name).string());
    }
    const char* const machine = R"({"disks": [{"read_bytes_per_second": 2e9}, {"read_bytes_per_second": 1e9}]})";
    options.machine = scratch_.file("disks.json", machine).string();
    return options;
  }
};

class EachBudget : public EachSameBits {};

class EachTiedHead : public EachSameBits {
 protected:
  // Those of the head that a step runs before its backward.
  static std::ptrdiff_t head_ops(const TrainOptions& options) {
    const TrainingSetup setup(options);
    return std::ranges::count(setup.steps.usual().program.ops, Phase::head,
                              [](const Op& op) { return op.label.phase; });
  }
};

TEST_P(EachBudget, WhateverTheBudgetTheThreadsAndTheTiming) {
  TrainOptions in_memory = options_;
  in_memory.save_steps = -1;  // commits move what nothing else does
  const Outcome expected = run(in_memory);
  EXPECT_EQ(disk_bytes_, 0) << "in memory nothing moves";
  for (const int threads : cases(std::vector{3, 1, 2})) {
    TrainOptions options = options_;
    options.threads = threads;
    options.delay_seed = 100 + threads;
    const PlanReport report = run_plan(options);
    const std::int64_t middling = (report.min_memory_bytes + report.in_memory_bytes) / 2;
    for (const std::int64_t budget : {middling, report.min_memory_bytes}) {
      options.memory_bytes = budget;
      expect_same(options, expected, "budget " + std::to_string(budget) + ", threads " + std::to_string(threads));
      EXPECT_GT(disk_bytes_, 0);
    }
  }
}

TEST_P(EachSameBits, WhateverIsRecomputedAndInWhicheverOrder) {
  const Outcome expected = run(options_);
  std::vector<std::pair<std::string, std::string>> ways = {
      {"layer", "block"}, {"layer", "attention"}, {"layer", "cheap"}, {"layer", "block:2"}};
  if (GetParam().accumulation > 1) ways.insert(ways.begin(), {{"micro-batch", "none"}, {"micro-batch", "block"}});
  for (const auto& [order, recompute] : ways) {
    TrainOptions options = options_;
    options.order = order;
    options.recompute = recompute;
    const PlanReport report = run_plan(options);
    options.memory_bytes = (report.min_memory_bytes + report.in_memory_bytes) / 2;
    options.delay_seed = 7;
    expect_same(options, expected, order + " order, recompute " + recompute);
    EXPECT_GT(disk_bytes_, 0);
  }
}

TEST_P(EachSameBits, WhateverThePolicy) {
  const Outcome expected = run(options_);
  for (const std::string policy : {"lru", "everything-on-disk", "lifetime", "belady", "farthest"}) {
    TrainOptions options = options_;
    options.policy = policy;
    options.delay_seed = 11;
    const PlanReport report = run_plan(options);
    for (const std::int64_t budget :
         cases(std::vector{report.min_memory_bytes, (report.min_memory_bytes + report.in_memory_bytes) / 2})) {
      options.memory_bytes = budget;
      expect_same(options, expected, policy + ", budget " + std::to_string(budget));
      EXPECT_GT(disk_bytes_, 0);
    }
  }
}

// A slow disk, so that choosing has a reason; then a limit that nothing meets, so that whatever writes least is taken.
// Under a sanitizer for one way of clipping.
TEST_P(EachSameBits, WhateverIsChosen) {
  const Outcome expected = run(options_);
  TrainOptions options = options_;
  options.order = options.recompute = options.policy = "auto";
  if (!under_sanitizer) options.clip_mode = "auto";
  std::ofstream(scratch_ / "machine.json") << R"({"disks": [{"read_bytes_per_second": 1e7}]})";
  options.machine = (scratch_ / "machine.json").string();
  const PlanReport report = run_plan(options);
  options.memory_bytes = (report.min_memory_bytes + report.in_memory_bytes) / 2;
  expect_same(options, expected, "chosen: " + run_plan(options).work);
  options.max_disk_writes_per_day = 1;
  expect_same(options, expected, "chosen to write little: " + run_plan(options).work);
}

TEST_P(EachSameBits, InHostileSettings) {
  const Outcome expected = run(options_);
  TrainOptions tight = options_;
  tight.memory_bytes = run_plan(options_).min_memory_bytes;
  TrainOptions small_requests = tight;
  small_requests.io_request_size_bytes = 4096;
  expect_same(small_requests, expected, "requests of 4 KiB");
  TrainOptions no_uring = tight;
  no_uring.allow_uring = false;
  expect_same(no_uring, expected, "without io_uring");
  TrainOptions slow_disk = tight;
  slow_disk.disk_bytes_per_second = 20 << 20;
  expect_same(slow_disk, expected, "a slow disk");
  TrainOptions at_rest = tight;
  at_rest.overlap_steps = false;
  expect_same(at_rest, expected, "each step brought to rest");
  TrainOptions two_disks = on_two_disks(small_requests);
  two_disks.threads = 1;
  two_disks.memory_bytes = run_plan(two_disks).min_memory_bytes;
  expect_same(two_disks, expected, "two spill directories, requests of 4 KiB, one thread");
  EXPECT_GT(disk_bytes_, 0);
  TrainOptions plain_pages = options_;
  plain_pages.huge_pages = false;
  plain_pages.page_size_bytes = 2 << 20;
  plain_pages.memory_bytes = run_plan(plain_pages).min_memory_bytes;
  expect_same(plain_pages, expected, "large pages that are not huge");
  TrainOptions flat = tight;
  flat.flat_pages = "always";
  flat.delay_seed = 17;
  EXPECT_TRUE(TrainingSetup(flat).planned.plans.front().flat);
  expect_same(flat, expected, "pages next to each other");
  flat.flat_pages = "never";
  expect_same(flat, expected, "pages as they come");
  TrainOptions larger_pieces = options_;
  larger_pieces.piece_elements = 2 * options_.piece_elements;
  larger_pieces.memory_bytes = run_plan(larger_pieces).min_memory_bytes;
  expect_same(larger_pieces, expected, "larger pieces");
}

TEST_P(EachSameBits, BelowTheSmallestBudgetIsRefusedBeforeAnythingIsWritten) {
  TrainOptions options = options_;
  options.memory_bytes = run_plan(options_).min_memory_bytes - (1 << 20);
  options.output_dir = (scratch_ / "never").string();
  EXPECT_FALSE(run_plan(options).fits);
  RecordingObserver observer;
  EXPECT_THROW(run_train(options, observer), DoesNotFit);
  EXPECT_FALSE(std::filesystem::exists(options.output_dir));
}

// Gradients of logits take less memory than the tied head's gradient, so they are kept in its stead until its end: in
// memory, with the smallest budget, with each way of updating, and below a device.
TEST_P(EachTiedHead, SameBitsWheneverItsGradientIsMade) {
  options_.max_seq_len = GetParam().dtype == "bf16" ? 66 : 34;
  TrainOptions at_once = options_;
  at_once.late_head_gradient = false;
  const Outcome expected = run(at_once);
  EXPECT_LT(head_ops(options_), head_ops(at_once)) << "it was made at once";
  expect_same(options_, expected, "in memory");
  const bool clips = GetParam().max_grad_norm > 0;
  for (const char* const mode : {"after", "deferred", "speculative"}) {
    TrainOptions options = options_;
    if (clips) options.clip_mode = mode;
    if (!clips) options.deferred_layers = mode == std::string("deferred") ? 1 : 0;
    options.memory_bytes = run_plan(options).min_memory_bytes;
    options.delay_seed = 13;
    expect_same(options, expected, std::string("with the smallest budget, ") + mode);
    EXPECT_GT(disk_bytes_, 0);
    if (!clips && mode == std::string("deferred")) break;
  }
  TrainOptions on_device = options_;
  on_device.device = "virtual";
  on_device.device_memory_bytes = gib;
  on_device.device_memory_bytes = run_plan(on_device).min_device_memory_bytes;
  on_device.recompute = "block";
  on_device.memory_bytes = run_plan(on_device).min_memory_bytes;
  expect_same(on_device, expected, "on a small device");
}

// The first three have each family, dtype, way of accumulating and kind of moments.
std::vector<Case> shapes() {
  const nlohmann::json llama = ragged_llama(3);
  const nlohmann::json gpt2 = ragged_gpt2(3);
  return {{"llama_bf16_clip_accumulate", llama, "bf16", 2, 0.5},
          {"gpt2_f32_free_accumulate", gpt2, "f32", 3},
          {"llama_bf16_8bit", llama, "bf16", 1, 0.5, "8bit"},
          {"llama_bf16_free", llama, "bf16"},
          {"gpt2_bf16_clip", gpt2, "bf16", 1, 0.5},
          {"gpt2_bf16_free_accumulate", gpt2, "bf16", 3},
          {"llama_f32_clip_accumulate", llama, "f32", 2, 0.5},
          {"llama_f32_free", llama, "f32"},
          {"gpt2_f32_clip", gpt2, "f32", 1, 0.5},
          {"gpt2_f32_8bit", gpt2, "f32", 2, 0, "8bit"}};
}

std::vector<Case> tied_shapes() {
  nlohmann::json llama = ragged_llama(2);
  llama["tie_word_embeddings"] = true;
  return {{"gpt2_bf16_free", ragged_gpt2(2), "bf16"},
          {"gpt2_f32_clip", ragged_gpt2(2), "f32", 1, 0.5},
          {"llama_bf16_8bit_clip", llama, "bf16", 1, 0.5, "8bit"}};
}

INSTANTIATE_TEST_SUITE_P(All, EachTiedHead, testing::ValuesIn(tied_shapes()), case_name);
INSTANTIATE_TEST_SUITE_P(All, EachBudget, testing::ValuesIn(cases(shapes(), 3)), case_name);
INSTANTIATE_TEST_SUITE_P(All, EachSameBits, testing::ValuesIn(cases(shapes(), 1)), case_name);

}  // namespace
}  // namespace spillway
