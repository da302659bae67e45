// Promise 3: a run that was stopped and goes on, with whatever memory, threads and pieces, gives the bits of one that
// was never stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "golden/model_folder.h"
#include "one_choice.h"
#include "recording_observer.h"
#include "scratch_folder.h"
#include "session/checkpoint_verbs.h"
#include "session/run_folder.h"
#include "session/session.h"
#include "stop_after.h"
#include "store/slot_file.h"

namespace spillway {
namespace {

class EqualResume : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto config = nlohmann::json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "vocab_size": 700, "hidden_size": 96, "intermediate_size": 200, "num_hidden_layers": 2, "num_attention_heads": 6,
      "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": false})");
    golden::write_model(scratch_ / "model", config, "");
    golden::write_tokens(scratch_ / "tokens.npy", 3000, 700);
    options_.model = (scratch_ / "model").string();
    options_.data = {(scratch_ / "tokens.npy").string()};
    options_.max_steps = total_steps;
    options_.per_device_train_batch_size = 2;
    options_.max_seq_len = 40;
    options_.learning_rate = 1e-3;
    options_.weight_decay = 0.1;
    options_.lr_scheduler_type = "cosine";
    options_.warmup_steps = 2;
    options_.dtype = GetParam();
    options_.threads = 2;
    options_.piece_elements = 65536;
    options_.page_size_bytes = 16384;
    leave_one_choice_under_sanitizer(options_);
    options_.output_dir = (scratch_ / "whole").string();
    smallest_bytes_ = run_plan(options_).min_memory_bytes + (std::int64_t{1} << 20);  // earlier runs of this process
    options_.memory_bytes = std::int64_t{1} << 30;
    RecordingObserver observer;
    run_train(options_, observer);
    expected_ = losses_of(observer);
    weights_ = scratch_.text_of("whole/model.safetensors");
  }

  static std::map<std::int64_t, float> losses_of(const RecordingObserver& observer) {
    std::map<std::int64_t, float> losses;
    for (const StepRecord& step : observer.steps) losses[step.step] = step.loss;
    return losses;
  }

  // Runs until `stop`, 0: to the end, and checks every loss.
  void part(const TrainOptions& options, std::int64_t first, std::int64_t stop) {
    RunControl control;
    StopAfter observer(control, stop);
    run_train(options, observer, &control);
    ASSERT_FALSE(observer.steps.empty());
    EXPECT_EQ(observer.steps.front().step, first);
    EXPECT_EQ(observer.steps.back().step, stop == 0 ? total_steps : stop);
    for (const auto& [step, loss] : losses_of(observer)) EXPECT_EQ(loss, expected_.at(step)) << "step " << step;
    EXPECT_EQ(observer.end.output_dir.empty(), stop != 0);
  }

  static constexpr std::int64_t total_steps = 9;
  ScratchFolder scratch_;
  TrainOptions options_;
  std::int64_t smallest_bytes_ = 0;
  std::map<std::int64_t, float> expected_;
  std::string weights_;
};

TEST_P(EqualResume, FromAFullExportUnderAnotherBudgetAndOtherPieces) {
  options_.export_steps = 4;
  options_.output_dir = (scratch_ / "first").string();
  part(options_, 1, 0);
  EXPECT_EQ(scratch_.text_of("first/model.safetensors"), weights_);

  options_.piece_elements = 131072;
  options_.threads = 1;
  options_.memory_bytes = run_plan(options_).min_memory_bytes;
  options_.resume_from_checkpoint = (scratch_ / "first/checkpoint-4").string();
  options_.output_dir = (scratch_ / "second").string();
  part(options_, 5, 0);
  EXPECT_EQ(scratch_.text_of("second/model.safetensors"), weights_);
  EXPECT_EQ(scratch_.text_of("second/checkpoint-8/optimizer.safetensors"),
            scratch_.text_of("first/checkpoint-8/optimizer.safetensors"));
}

TEST_P(EqualResume, AnExportWithoutTheOptimizerIsNothingToResumeFrom) {
  options_.export_steps = 4;
  options_.save_only_model = true;
  options_.output_dir = (scratch_ / "first").string();
  part(options_, 1, 0);
  EXPECT_FALSE(scratch_.text_of("first/checkpoint-4/model.safetensors").empty());
  options_.resume_from_checkpoint = (scratch_ / "first/checkpoint-4").string();
  options_.output_dir = (scratch_ / "second").string();
  RecordingObserver observer;
  EXPECT_THROW(run_train(options_, observer), UserError);
}

TEST_P(EqualResume, FromCommitsUnderOtherBudgetsThreeTimesOver) {
  options_.output_dir = (scratch_ / "run").string();
  options_.save_steps = 1;
  options_.memory_bytes = smallest_bytes_;
  part(options_, 1, 2);
  options_.memory_bytes = std::int64_t{1} << 30;
  options_.threads = 1;
  part(options_, 3, 4);
  options_.memory_bytes = smallest_bytes_ + (smallest_bytes_ >> 3);
  options_.page_size_bytes = 8192;  // no slot serves as it is
  options_.piece_elements = 131072;
  part(options_, 5, 7);
  std::filesystem::create_directory(scratch_ / "elsewhere");
  options_.spill_dir = {(scratch_ / "elsewhere").string()};
  options_.threads = 2;
  part(options_, 8, 0);
  EXPECT_EQ(scratch_.text_of("run/model.safetensors"), weights_);
  EXPECT_TRUE(std::filesystem::is_empty(scratch_ / "elsewhere")) << "nothing is left of a run that ended well";
}

// Each part goes on from a commit of the one before, whose plans are of another kind.
TEST_P(EqualResume, FromCommitsUnderOtherPoliciesRecomputingAndWaysOfClipping) {
  options_.output_dir = (scratch_ / "run").string();
  options_.save_steps = 1;
  options_.memory_bytes = smallest_bytes_;
  struct Kind {
    std::string policy, recompute, clip_mode;
  };
  const std::vector<Kind> kinds{{"lifetime", "none", "after"},       {"everything-on-disk", "block", "deferred"},
                                {"lru", "cheap", "speculative"},     {"belady", "attention", "after"},
                                {"farthest", "block:1", "deferred"}, {"farthest", "none", "speculative"}};
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    options_.policy = kinds[i].policy;
    options_.recompute = kinds[i].recompute;
    options_.clip_mode = kinds[i].clip_mode;
    const PlanReport report = run_plan(options_);
    EXPECT_EQ(report.clip, kinds[i].clip_mode) << kinds[i].policy;
    EXPECT_GT(report.disk_read_bytes_per_step, 0) << kinds[i].policy;
    const auto first = static_cast<std::int64_t>(i) + 1;
    part(options_, first, i + 1 < kinds.size() ? first : 0);
  }
  EXPECT_EQ(scratch_.text_of("run/model.safetensors"), weights_);
}

TEST_P(EqualResume, AnExportOfARunIsThatOfAStoppedOne) {
  options_.output_dir = (scratch_ / "run").string();
  options_.save_steps = 1;
  options_.export_steps = 3;
  options_.memory_bytes = smallest_bytes_ + (std::int64_t{32} << 20);
  part(options_, 1, 0);
  options_.export_steps = 0;
  options_.output_dir = (scratch_ / "stopped").string();
  part(options_, 1, 6);
  EXPECT_EQ(export_checkpoint(scratch_ / "stopped", -1, scratch_ / "six", false), 6);
  for (const std::string name : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(scratch_.text_of("six/" + name), scratch_.text_of("run/checkpoint-6/" + name)) << name;

  EvalOptions eval;
  eval.data = options_.data;
  eval.max_seq_len = options_.max_seq_len;
  eval.max_windows = 8;
  eval.dtype = GetParam();
  eval.threads = 2;
  eval.memory_bytes = std::int64_t{1} << 30;
  const auto loss_of = [&](const std::string& folder) {
    eval.model = (scratch_ / folder).string();
    return run_eval(eval).loss;
  };
  const double loss = loss_of("run/checkpoint-6");
  EXPECT_EQ(loss, loss_of("six"));
  EXPECT_NE(loss, loss_of("run/checkpoint-3"));
  EXPECT_NE(loss, loss_of("run"));
}

TEST_P(EqualResume, AStepThatDivergesIsNotCommitted) {
  options_.output_dir = (scratch_ / "run").string();
  options_.save_steps = 1;
  options_.learning_rate = 1e30;
  options_.warmup_steps = 0;
  for (const std::int64_t budget : {smallest_bytes_, std::int64_t{1} << 30}) {
    options_.memory_bytes = budget;
    RecordingObserver observer;
    EXPECT_THROW(run_train(options_, observer), UserError);
    std::int64_t newest = 0;
    for (const CheckpointRow& row : list_checkpoints(scratch_ / "run").rows) newest = std::max(newest, row.step);
    EXPECT_EQ(newest, last_recorded_step(scratch_ / "run"));
    EXPECT_LT(newest, total_steps);
  }
}

TEST_P(EqualResume, ASecondRunInTheFolderIsRefused) {
  options_.output_dir = (scratch_ / "run").string();
  struct Second final : RecordingObserver {
    explicit Second(const TrainOptions& given) : options(given) {}
    void step(const StepRecord&) override {
      RecordingObserver other;
      EXPECT_THROW(run_train(options, other), UserError);
      ++refused;
    }
    const TrainOptions& options;
    int refused = 0;
  } observer(options_);
  run_train(options_, observer);
  EXPECT_EQ(observer.refused, total_steps);
  EXPECT_EQ(scratch_.text_of("run/model.safetensors"), weights_);
}

// The slot files of the run, which lie in its folder.
std::vector<std::filesystem::path> slot_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".slots") files.push_back(entry.path());
  }
  return files;
}

TEST_P(EqualResume, AFlippedBitIsFoundWhereverItMatters) {
  options_.output_dir = (scratch_ / "run").string();
  options_.save_steps = 1;
  options_.memory_bytes = smallest_bytes_;
  part(options_, 1, 3);
  const auto files = slot_files(scratch_ / "run");
  ASSERT_EQ(files.size(), 1U);
  ASSERT_TRUE(verify_checkpoints(scratch_ / "run").sound());
  const auto flip = [&](std::int64_t at) {
    std::fstream file(files.front(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const int byte = file.get();
    file.seekp(at);
    file.put(static_cast<char>(byte ^ 1));
  };
  const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(files.front()));
  int found = 0;
  for (std::int64_t at = slot_file_head_bytes + 5; at < bytes; at += bytes / 100) {
    flip(at);
    const CheckpointReport report = verify_checkpoints(scratch_ / "run");
    found += report.sound() ? 0 : 1;
    flip(at);
  }
  EXPECT_GT(found, 5) << "at least a share of the slots holds the commit";
  EXPECT_TRUE(verify_checkpoints(scratch_ / "run").sound());
  part(options_, 4, 0);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, EqualResume, testing::Values("f32", "bf16"),
                         [](const testing::TestParamInfo<std::string>& test) { return test.param; });

}  // namespace
}  // namespace spillway
