// Training on a CUDA device: losses near those of the CPU, and the same bits whatever the device and the host have room
// for, and wherever updates run. Without a device only that it is refused is tested.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/error.h"
#include "cuda/cuda.h"
#include "golden/model_folder.h"
#include "recording_observer.h"
#include "scratch_folder.h"
#include "session/run_control.h"
#include "session/session.h"
#include "store/spill_file.h"

namespace spillway {
namespace {

nlohmann::json llama() {
  return nlohmann::json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 1200,
    "hidden_size": 64, "intermediate_size": 136, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": false})");
}

nlohmann::json gpt2() {
  return nlohmann::json::parse(R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 1200,
    "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "layer_norm_epsilon": 1e-5})");
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string reason() {
  try {
    open_cuda_device();
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;
  std::string weights;
};

class OnCuda : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    golden::write_model(scratch_ / "llama", llama(), "");
    golden::write_model(scratch_ / "gpt2", gpt2(), "");
    golden::write_tokens(scratch_ / "tokens.npy", 4000, 1200);
    options_.model = (scratch_ / "llama").string();
    options_.data = {(scratch_ / "tokens.npy").string()};
    options_.max_steps = 3;
    options_.per_device_train_batch_size = 2;
    options_.gradient_accumulation_steps = 2;
    options_.max_seq_len = 50;
    options_.learning_rate = 1e-3;
    options_.max_grad_norm = 0.5;
    options_.dtype = "f32";
    options_.threads = 2;
    options_.save_steps = -1;
    options_.poison = true;
    options_.order = "layer";
    options_.recompute = "none";
  }

  Outcome run(TrainOptions options) {
    options.output_dir = (scratch_ / ("out" + std::to_string(runs_++))).string();
    RecordingObserver observer;
    run_train(options, observer);
    Outcome outcome;
    for (const StepRecord& step : observer.steps) {
      outcome.losses.push_back(step.loss);
      outcome.norms.push_back(step.grad_norm);
    }
    outcome.weights = bytes_of(std::filesystem::path(options.output_dir) / "model.safetensors");
    return outcome;
  }

  ScratchFolder scratch_;
  TrainOptions options_;
  int runs_ = 0;
};

TEST_F(OnCuda, WithoutADeviceARunIsRefusedBeforeItBegins) {
  const std::string why = reason();
  if (why.empty()) GTEST_SKIP() << "there is a device";
  options_.device = "cuda";
  options_.output_dir = (scratch_ / "out").string();
  RecordingObserver observer;
  try {
    run_train(options_, observer);
    FAIL() << "it ran";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), why);
  }
  EXPECT_TRUE(observer.steps.empty());
}

TEST_F(OnCuda, ALinkIsTheDevicesOwn) {
  options_.device = "cuda";
  options_.link_up = 1 << 30;
  EXPECT_THROW(run_plan(options_), UserError);
}

TEST_P(OnCuda, LossesAreNearTheCpus) {
  if (const std::string why = reason(); !why.empty()) GTEST_SKIP() << why;
  options_.model = (scratch_ / GetParam()).string();
  options_.max_steps = 20;
  const Outcome expected = run(options_);
  options_.device = "cuda";
  options_.device_memory_bytes = std::int64_t{1} << 30;
  const Outcome outcome = run(options_);
  ASSERT_EQ(outcome.losses.size(), expected.losses.size());
  for (std::size_t step = 0; step < expected.losses.size(); ++step) {
    EXPECT_NEAR(outcome.losses[step] / expected.losses[step], 1, 1e-4) << "step " << step + 1;
    EXPECT_NEAR(outcome.norms[step] / expected.norms[step], 1, 1e-3) << "step " << step + 1;
  }
}

TEST_P(OnCuda, TheSameBitsWhateverTheBudgets) {
  if (const std::string why = reason(); !why.empty()) GTEST_SKIP() << why;
  options_.model = (scratch_ / GetParam()).string();
  options_.device = "cuda";
  for (const std::string dtype : {"f32", "bf16"}) {
    options_.dtype = dtype;
    options_.device_memory_bytes = std::int64_t{2} << 30;
    const PlanReport roomy = run_plan(options_);
    ASSERT_TRUE(roomy.fits) << roomy.advice;
    const Outcome expected = run(options_);
    const std::int64_t least = roomy.min_device_memory_bytes;
    const std::int64_t most = roomy.peak_device_memory_bytes;
    for (const double share : {0.0, 0.4, 1.0}) {
      options_.device_memory_bytes = least + static_cast<std::int64_t>(share * static_cast<double>(most - least));
      options_.memory_bytes = 0;
      const PlanReport report = run_plan(options_);
      ASSERT_TRUE(report.fits) << report.advice;
      for (const std::int64_t budget :
           {report.in_memory_bytes, report.min_memory_bytes + 64 * (std::int64_t{1} << 20)}) {
        options_.memory_bytes = budget;
        options_.delay_seed = 1 + budget % 1000;
        const Outcome outcome = run(options_);
        EXPECT_EQ(outcome.losses, expected.losses) << dtype << ", device " << options_.device_memory_bytes;
        EXPECT_EQ(outcome.norms, expected.norms) << dtype << ", device " << options_.device_memory_bytes;
        EXPECT_TRUE(outcome.weights == expected.weights) << dtype << ", device " << options_.device_memory_bytes;
      }
    }
    options_.memory_bytes = 0;
    options_.delay_seed = 0;
  }
}

// Graphs of what is the same in every step, beside ops that are started one by one.
TEST_P(OnCuda, TheSameBitsReplayed) {
  if (const std::string why = reason(); !why.empty()) GTEST_SKIP() << why;
  options_.model = (scratch_ / GetParam()).string();
  options_.device = "cuda";
  options_.device_memory_bytes = std::int64_t{1} << 30;
  options_.poison = false;  // where pages are filled, nothing is recorded
  options_.max_steps = 6;
  options_.eval_data = options_.data;  // another plan in between
  options_.eval_steps = 2;
  for (const std::string dtype : {"f32", "bf16"}) {
    options_.dtype = dtype;
    options_.device_replay = false;
    const Outcome expected = run(options_);
    options_.device_replay = true;
    const Outcome outcome = run(options_);
    EXPECT_EQ(outcome.losses, expected.losses) << dtype;
    EXPECT_EQ(outcome.norms, expected.norms) << dtype;
    EXPECT_TRUE(outcome.weights == expected.weights) << dtype;
  }
}

TEST_P(OnCuda, TheSameBitsWhereverUpdatesRun) {
  if (const std::string why = reason(); !why.empty()) GTEST_SKIP() << why;
  options_.model = (scratch_ / GetParam()).string();
  options_.device = "cuda";
  options_.device_memory_bytes = std::int64_t{1} << 30;
  for (const std::string dtype : {"f32", "bf16"}) {
    options_.dtype = dtype;
    options_.update_on = "device";
    const Outcome expected = run(options_);
    for (const std::string side : {"cpu", "3"}) {
      options_.update_on = side;
      const Outcome outcome = run(options_);
      EXPECT_EQ(outcome.losses, expected.losses) << dtype << ", update on " << side;
      EXPECT_EQ(outcome.norms, expected.norms) << dtype << ", update on " << side;
      EXPECT_TRUE(outcome.weights == expected.weights) << dtype << ", update on " << side;
    }
  }
}

TEST_P(OnCuda, TheSameBitsWhereTheDiskIsReachedDirectly) {
  if (const std::string why = reason(); !why.empty()) GTEST_SKIP() << why;
  const SpillFile file = SpillFile::make_unnamed(scratch_ / "", std::int64_t{1} << 20);
  if (const std::string why = open_cuda_device()->why_not_direct(file.descriptor()); !why.empty()) GTEST_SKIP() << why;
  options_.model = (scratch_ / GetParam()).string();
  options_.device = "cuda";
  options_.device_memory_bytes = std::int64_t{2} << 30;
  options_.gradient_accumulation_steps = 32;  // more activations than the host is given room for
  options_.max_seq_len = 120;
  options_.max_steps = 2;
  const Outcome expected = run(options_);
  options_.device_memory_bytes = run_plan(options_).min_device_memory_bytes;
  options_.memory_bytes = 0;
  options_.memory_bytes = run_plan(options_).min_memory_bytes + 64 * (std::int64_t{1} << 20);
  options_.policy = "everything-on-disk";
  for (const std::string direct : {"true", "false"}) {
    options_.device_direct = direct;
    EXPECT_EQ(run_plan(options_).direct_read_bytes_per_step > 0, direct == "true");
    const Outcome outcome = run(options_);
    EXPECT_EQ(outcome.losses, expected.losses) << direct;
    EXPECT_EQ(outcome.norms, expected.norms) << direct;
    EXPECT_TRUE(outcome.weights == expected.weights) << direct;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, OnCuda, testing::Values("llama", "gpt2"),
                         [](const testing::TestParamInfo<std::string>& family) { return family.param; });

}  // namespace
}  // namespace spillway
