// bf16 follows f32: the same model on a real text, which every Debian machine has, ends at the same loss within 2%.
#include <gtest/gtest.h>

#include <filesystem>

#include "recording_observer.h"
#include "scratch_folder.h"
#include "session/session.h"

namespace spillway {
namespace {

constexpr std::string_view licences = "/usr/share/common-licenses";

double final_loss(TrainOptions options, const std::string& dtype, const std::filesystem::path& output) {
  options.dtype = dtype;
  options.output_dir = output.string();
  RecordingObserver run;
  run_train(options, run);
  EXPECT_LT(run.steps.back().loss, 0.6 * run.steps.front().loss) << "it learns";
  return run.steps.back().eval_loss.value_or(0);
}

TEST(Bf16, EndsWithinTwoPercentOfF32) {
  const ScratchFolder scratch;
  std::filesystem::copy_file(std::filesystem::path(licences) / "GPL-3", scratch / "text.txt");
  InitOptions init;
  init.arch = "llama";
  init.tokenizer = "bytes";
  init.output = (scratch / "model").string();
  init.hidden_size = 64;
  init.intermediate_size = 160;
  init.num_hidden_layers = 2;
  init.num_attention_heads = 4;
  init.num_key_value_heads = 2;
  init.tie_word_embeddings = "true";
  run_init(init);
  TrainOptions options;
  options.model = init.output;
  options.data = {(scratch / "text.txt").string()};
  options.eval_data = options.data;
  options.max_steps = 200;
  options.per_device_train_batch_size = 8;
  options.max_seq_len = 64;
  options.learning_rate = 1e-3;
  options.warmup_steps = 10;
  options.threads = 2;
  const double f32 = final_loss(options, "f32", scratch / "f32");
  const double bf16 = final_loss(options, "bf16", scratch / "bf16");
  EXPECT_NEAR(bf16, f32, 0.02 * f32);
  RecordProperty("f32", std::to_string(f32));
  RecordProperty("bf16", std::to_string(bf16));
}

}  // namespace
}  // namespace spillway
