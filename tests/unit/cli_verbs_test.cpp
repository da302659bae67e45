// The verbs from end to end on tiny models: what they write, and what they refuse without harm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <array>

#include "base/dtype.h"
#include "formats/safetensors.h"
#include "verbs.h"

namespace spillway {
namespace {

using testing::HasSubstr;

TEST_F(Verbs, InitRefusesSizesThatOtherVerbsWould) {
  expect_refused(init({"--hidden-size", "16", "--vocab-size", "99999999999", path("big")}), "--vocab-size");
  expect_refused(init({"--hidden-size", "16", "--head-dim", "1000000000", path("big")}), "head_dim is 1000000000");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "big"));
}

TEST_F(Verbs, InitAsksForSpaceBeforeItWrites) {
  expect_refused(init({"--hidden-size", "1048576", "--vocab-size", "2147483647", path("big")}), "free", 4);
}

TEST_F(Verbs, TrainLeavesItsOptionsAndInspectReadsThem) {
  const Outcome trained = run(train({"--memory", "200MiB", "--threads", "1", "--learning-rate", "1.25e-3"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::string config = folder_.text_of("out/run.yaml");
  EXPECT_THAT(config, HasSubstr("\nlearning_rate: 0.00125\n"));
  EXPECT_THAT(config, HasSubstr("\nmemory: 200MiB\n"));
  EXPECT_THAT(config, HasSubstr("\nthreads: 1\n"));
  EXPECT_EQ(run({"train", path("out/run.yaml"), "--print-config"}).out, config);

  const Outcome story = run({"inspect", "--run", path("out"), "--tensor", "model.embed_tokens.weight"});
  EXPECT_EQ(story.code, 0) << story.err;
  EXPECT_THAT(story.out, HasSubstr("a step at 200 MiB"));
  EXPECT_THAT(run({"inspect", "--run", path("out")}).out, HasSubstr("model.embed_tokens.weight"));
  expect_refused({"inspect", "--run", path("model")}, "run.yaml");
}

TEST_F(Verbs, TrainHasAsManyRequestsInFlightAsTheMachineSays) {
  folder_.file("machine.json", R"({"disks": [{"read_bytes_per_second": 1e9, "depth": 3}]})");
  const Outcome trained = run(train({"--memory", "200MiB", "--machine", path("machine.json")}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.out + trained.err, testing::AnyOf(HasSubstr("io_uring, 3 requests"), HasSubstr("3 threads of")));
}

TEST_F(Verbs, TrainDoesNotReplaceAConfigInItsOutput) {
  std::filesystem::create_directory(folder_ / "out");
  folder_.file("out/run.yaml", "# mine\nmax_steps: 1\n");
  expect_refused(train({}), "run.yaml");
  EXPECT_EQ(folder_.text_of("out/run.yaml"), "# mine\nmax_steps: 1\n");
}

TEST_F(Verbs, TrainNamesTheFileThatIsTooShort) {
  folder_.file("short.txt", "a few words");
  expect_refused(train({"--eval-data", path("short.txt")}), "short.txt: 12 tokens are too few");
}

TEST_F(Verbs, HiddenKeysAreCheckedToo) {
  expect_refused(train({"--page-size", "3MiB"}), "page_size");
  expect_refused(train({"--page-size", "1"}), "page_size");
  expect_refused(train({"--io-request-size", "5"}), "io_request_size");
}

TEST_F(Verbs, ImpossibleBatchesAreRefusedAtOnce) {
  expect_refused(train({"--per-device-train-batch-size", "1000000000000"}), "--per-device-train-batch-size");
  expect_refused(train({"--gradient-accumulation-steps", "1000000000000"}), "--gradient-accumulation-steps");
  expect_refused(train({"--num-train-epochs", "1e300"}), "--num-train-epochs");
}

TEST_F(Verbs, TensorsThatAreNoParametersKeepTheirBits) {
  const SafetensorsReader before(folder_ / "model/model.safetensors");
  std::vector<SafetensorsTensor> tensors;
  for (const SafetensorsEntry& entry : before.entries())
    tensors.push_back({entry.name, entry.stored_dtype, entry.shape});
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {4}});
  std::filesystem::create_directory(folder_ / "with");
  for (const char* name : {"config.json", "tokenizer.json"})
    std::filesystem::copy_file(folder_ / "model" / name, folder_ / "with" / name);
  const std::array<float, 4> table{1.0F, 0.5F, 0.25F, 0.125F};
  {
    ModelFolderWriter writer(folder_ / "with", tensors);
    std::vector<std::byte> bytes;
    for (const SafetensorsEntry& entry : before.entries()) {
      bytes.resize(static_cast<std::size_t>(entry.bytes));
      before.read(entry, 0, bytes);
      writer.write(entry.name, 0, bytes);
    }
    writer.write(tensors.back().name, 0, std::as_bytes(std::span(table)));
    writer.finish();
  }
  const Outcome outcome = run(train({"--model", path("with"), "--max-steps", "0"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const SafetensorsReader after(folder_ / "out/model.safetensors");
  const SafetensorsEntry* entry = after.find(tensors.back().name);
  ASSERT_NE(entry, nullptr);
  std::array<float, 4> kept{};
  after.read(*entry, 0, std::as_writable_bytes(std::span(kept)));
  EXPECT_EQ(kept, table);
}

TEST_F(Verbs, InspectSaysWhereToLook) {
  expect_refused({"inspect", "--model", path("model"), "--tensor", "zzz"}, "leave --tensor out");
  expect_refused({"inspect", "--model", path("model"), "--tensor", "model.norm.weight", "--json"}, "--json");
}

}  // namespace
}  // namespace spillway
