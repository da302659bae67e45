// The verbs from end to end on tiny models: what they write, and what they refuse without harm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <map>

#include "base/dtype.h"
#include "command_outcome.h"
#include "formats/safetensors.h"
#include "scratch_folder.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A folder with a tiny model, a text, and paths in it.
class Verbs : public ::testing::Test {
 protected:
  void SetUp() override {
    const Outcome outcome = run(init({"--hidden-size", "16", path("model")}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    std::string text;
    for (int i = 0; i < 40; ++i) text += "some words and " + std::to_string(i) + " more\n";
    folder_.file("data.txt", text);
  }

  std::string path(std::string_view name) const { return (folder_ / name).string(); }
  static std::vector<std::string> init(std::vector<std::string> more) {
    std::vector<std::string> all{"init",  "--arch",
                                 "llama", "--tokenizer",
                                 "bytes", "--num-attention-heads",
                                 "2",     "--num-hidden-layers",
                                 "1",     "--intermediate-size",
                                 "24"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::vector<std::string> train(std::vector<std::string> more) const {
    std::vector<std::string> all{"train",        "--model",       path("model"), "--data", path("data.txt"),
                                 "--output-dir", path("out"),     "--max-steps", "2",      "--dtype",
                                 "f32",          "--max-seq-len", "16"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  const ScratchFolder folder_;
};

TEST_F(Verbs, InitRefusesSizesThatOtherVerbsWould) {
  expect_refused(init({"--hidden-size", "16", "--vocab-size", "99999999999", path("big")}), "--vocab-size");
  expect_refused(init({"--hidden-size", "16", "--head-dim", "1000000000", path("big")}), "head_dim is 1000000000");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "big"));
}

TEST_F(Verbs, PlanAnswersForAMachineGivenByAFewNumbers) {
  const auto compute_seconds = [&](const std::string& rate) {
    folder_.file("machine.json",
                 R"({"op_seconds": 0, "memory_bytes_per_second": 1e30, "f32_flops_per_second": )" + rate + "}");
    const Outcome outcome =
        run({"plan", "--model", path("model"), "--data", path("data.txt"), "--dtype", "f32", "--max-seq-len", "16",
             "--memory", "2GiB", "--machine", path("machine.json"), "--predict", "--json"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out).at("compute_seconds").get<double>();
  };
  const double slow = compute_seconds("1e9");
  EXPECT_GT(slow, 0);
  EXPECT_NEAR(compute_seconds("4e9"), slow / 4, 1e-9 * slow);
}

TEST_F(Verbs, PlanSaysWhereTheTimeGoesAndWhatWouldHelp) {
  ASSERT_EQ(run(init({"--hidden-size", "256", "--num-hidden-layers", "4", path("larger")})).code, 0);
  folder_.file("machine.json", R"({"disks": [{"read_bytes_per_second": 1e6}]})");
  const std::vector<std::string> asked{
      "plan",        "--model",   path("larger"),       "--data",     path("data.txt"),
      "--dtype",     "f32",       "--max-seq-len",      "16",         "--gradient-accumulation-steps",
      "4",           "--machine", path("machine.json"), "--disk-tbw", "100",
      "--max-steps", "7"};
  const auto plan = [&](const std::string& memory) {
    std::vector<std::string> arguments = asked;
    arguments.insert(arguments.end(), {"--memory", memory, "--json"});
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  };
  const auto wide = plan("2GiB");
  const auto smallest = wide.at("min_memory_bytes").get<std::int64_t>();
  const auto tight = plan(std::to_string(smallest));
  const auto middling = plan(std::to_string((smallest + wide.at("in_memory_bytes").get<std::int64_t>()) / 2));
  for (const auto& json : {wide, tight, middling}) {
    double seconds = 0;
    for (const auto& phase : json.at("phases")) {
      seconds += phase.at("compute_seconds").get<double>() + phase.at("wait_seconds").get<double>();
    }
    const auto step = json.at("step_seconds").get<double>();
    EXPECT_NEAR(seconds, step, 1e-6 * step);
    EXPECT_GE(step, json.at("lower_bound_seconds").get<double>() * (1 - 1e-9));
    EXPECT_NEAR(json.at("share_of_bound").get<double>() * step, json.at("lower_bound_seconds").get<double>(), 1e-9);
    EXPECT_NEAR(json.at("run_seconds").get<double>(), 7 * step, 1e-6 * step);
    std::int64_t peak = 0;
    std::int64_t waste = 0;
    for (const auto& row : json.at("peak_by_tag")) {
      peak += row.at("bytes").get<std::int64_t>();
      waste += row.at("waste_bytes").get<std::int64_t>();
      EXPECT_LE(row.at("waste_bytes"), row.at("bytes")) << row;
    }
    EXPECT_GT(waste, 0) << "vectors of norms fill no page";
    EXPECT_LT(waste, peak / 2);
    EXPECT_EQ(peak, json.at("peak_memory_bytes").get<std::int64_t>());
  }
  EXPECT_EQ(wide.at("levers").size(), 1U);  // neither memory nor a disk helps where nothing moves
  EXPECT_EQ(wide.at("disk_write_bytes_per_step").get<std::int64_t>(), 0);
  EXPECT_EQ(tight.at("bottleneck"), "disk");
  std::int64_t written = 0;
  for (const auto& row : tight.at("links")) written += row.at("write_bytes").get<std::int64_t>();
  EXPECT_EQ(written, tight.at("disk_write_bytes_per_step").get<std::int64_t>());
  EXPECT_GT(tight.at("disk_life_years").get<double>(), 0);
  std::map<std::string, double> speedup;
  for (const auto& lever : middling.at("levers")) speedup[lever.at("what")] = lever.at("speedup");
  EXPECT_NEAR(speedup.at("a second disk"), 2, 0.2);
  EXPECT_NEAR(speedup.at("twice the compute"), 1, 0.05) << "the disk binds";
  EXPECT_GT(speedup.at("twice the memory"), 1.05);
  EXPECT_GT(speedup.at("twice the batch"), 0);
}

TEST_F(Verbs, PlanSaysWhichWayStepsClip) {
  ASSERT_EQ(run(init({"--hidden-size", "256", "--num-hidden-layers", "4", path("larger")})).code, 0);
  folder_.file("machine.json", R"({"disks": [{"read_bytes_per_second": 1e8}]})");
  const auto plan = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"plan",
                                       "--model",
                                       path("larger"),
                                       "--data",
                                       path("data.txt"),
                                       "--dtype",
                                       "f32",
                                       "--machine",
                                       path("machine.json"),
                                       "--max-seq-len",
                                       "16",
                                       "--max-steps",
                                       "7"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  const auto smallest = nlohmann::json::parse(plan({"--json"})).at("min_memory_bytes").get<std::int64_t>();
  const std::string memory = std::to_string(smallest + (8 << 20));  // in which each way finds room
  for (const std::string mode : {"after", "deferred", "speculative"}) {
    const std::vector<std::string> forced{"--memory", memory, "--max-grad-norm", "1", "--clip-mode", mode};
    std::vector<std::string> as_json = forced;
    as_json.emplace_back("--json");
    EXPECT_EQ(nlohmann::json::parse(plan(as_json)).at("clip"), mode);
    const std::string text = plan(forced);
    EXPECT_THAT(text, testing::ContainsRegex("clipping +" + mode + "\n"));
    EXPECT_EQ(text.find("if none clips") != std::string::npos, mode == "speculative") << text;
  }
  const std::vector<std::string> unlimited{"--memory", memory, "--max-grad-norm", "0"};
  EXPECT_THAT(plan(unlimited), testing::ContainsRegex("clipping +none\n"));
}

// So slow on the processor that a step ends with a wait for them.
TEST_F(Verbs, PlanCountsUpdatesBesideADevice) {
  folder_.file("machine.json", "{}");
  folder_.file("run.yaml", "model: " + path("model") + "\ndata: [" + path("data.txt") + "]\nmachine: " +
                               path("machine.json") + "\ndtype: f32\nmax_seq_len: 16\nmemory: 2GiB\ndevice: virtual\n" +
                               "device_memory: 512MiB\nupdate_on: cpu\nupdate_rate_cpu: 100000\nclip_mode: after\n");
  const auto plan = [&](const std::string& more) {
    const Outcome outcome = run({"plan", path("run.yaml"), more});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  const auto json = nlohmann::json::parse(plan("--json"));
  const auto step = json.at("step_seconds").get<double>();
  EXPECT_EQ(json.at("bottleneck"), "update");
  double seconds = 0;
  double waits = 0;
  for (const auto& phase : json.at("phases")) {
    seconds += phase.at("compute_seconds").get<double>() + phase.at("wait_seconds").get<double>();
    waits += phase.at("wait_seconds").get<double>();
  }
  EXPECT_NEAR(seconds, step, 1e-6 * step);
  EXPECT_NEAR(waits, json.at("stall_seconds").get<double>(), 1e-6 * step);
  EXPECT_EQ(json.at("phases").back().at("phase"), "update");
  EXPECT_GT(json.at("phases").back().at("wait_seconds").get<double>(), step / 2);
  EXPECT_THAT(plan("--predict"), HasSubstr(fmt::format("{:.3f} s of updates on the processor; the plan reaches",
                                                       json.at("update_seconds").get<double>())));
}

// Those of the step before, while a deferred one begins.
TEST_F(Verbs, PlanCountsKeptGradientsAmongWhatIsAlive) {
  const Outcome outcome =
      run({"plan", "--model", path("model"), "--data", path("data.txt"), "--dtype", "f32", "--max-seq-len", "16",
           "--memory", "2GiB", "--no-predict", "--clip-mode", "deferred", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  std::int64_t at_the_peak = 0;
  for (const auto& row : json.at("peak_by_tag")) {
    if (row.at("what") != "gradients" && row.at("what") != "activations") continue;
    at_the_peak += row.at("bytes").get<std::int64_t>() - row.at("waste_bytes").get<std::int64_t>();
  }
  EXPECT_GE(json.at("placement").back().at("bytes").get<std::int64_t>(), at_the_peak);
}

// As a probe without an output folder measures it.
TEST_F(Verbs, PlanWithoutAnOutputFolderIsForTheDiskOfTheCurrentOne) {
  const auto disk = [](const std::filesystem::path& directory, double rate) {
    return nlohmann::json{{"directory", directory.string()}, {"read_bytes_per_second", rate}};
  };
  const std::filesystem::path current = std::filesystem::current_path();
  const std::filesystem::path temporary = std::filesystem::temp_directory_path();
  if (current == temporary) GTEST_SKIP() << "both are " << current;
  folder_.file("machine.json", nlohmann::json{{"disks", {disk(temporary, 1e6), disk(current, 5e8)}}}.dump());
  ASSERT_EQ(run(init({"--hidden-size", "256", "--num-hidden-layers", "4", path("larger")})).code, 0);
  const auto plan = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"plan",
                                       "--model",
                                       path("larger"),
                                       "--data",
                                       path("data.txt"),
                                       "--dtype",
                                       "f32",
                                       "--machine",
                                       path("machine.json"),
                                       "--max-seq-len",
                                       "16",
                                       "--recompute",
                                       "none",
                                       "--clip-mode",
                                       "after",
                                       "--order",
                                       "layer",
                                       "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  };
  const std::string memory = std::to_string(plan({"--memory", "2GiB"}).at("min_memory_bytes").get<std::int64_t>());
  const auto disk_seconds = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--memory", memory});
    return plan(more).at("disk_seconds").get<double>();
  };
  const double here = disk_seconds({"--spill-dir", current.string()});
  EXPECT_GT(disk_seconds({"--spill-dir", temporary.string()}), 2 * here);
  EXPECT_NEAR(disk_seconds({}), here, 1e-9 * here);
}

TEST_F(Verbs, PlanCountsTheStepsThatEpochsMake) {
  const std::vector<std::string> epochs{
      "--max-steps", "-1", "--num-train-epochs", "1.5", "--per-device-train-batch-size", "4"};
  ASSERT_EQ(run(train(epochs)).code, 0);
  const std::string metrics = folder_.text_of("out/metrics.jsonl");
  std::vector<std::string> asked{"plan", "--model", path("model"), "--data",       path("data.txt"), "--max-seq-len",
                                 "16",   "--dtype", "f32",         "--no-predict", "--json"};
  asked.insert(asked.end(), epochs.begin(), epochs.end());
  const auto json = nlohmann::json::parse(run(asked).out);
  const auto steps = json.at("total_steps").get<std::int64_t>();
  EXPECT_GT(steps, 5);
  EXPECT_FALSE(json.at("total_steps_estimated").get<bool>());
  EXPECT_THAT(metrics, HasSubstr(fmt::format("\"step\": {},", steps)));
  EXPECT_THAT(metrics, Not(HasSubstr(fmt::format("\"step\": {},", steps + 1))));
  asked[4] = path("gone.txt");
  const Outcome without = run(asked);
  EXPECT_EQ(without.code, 0);
  EXPECT_THAT(without.err, HasSubstr("gone.txt"));
  EXPECT_EQ(nlohmann::json::parse(without.out).at("total_steps"), 0);
}

TEST_F(Verbs, PlanSaysWhatDoesNotHoldForTheRunItIsAsked) {
  const auto notes = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"plan",           "--model",       path("model"), "--data",
                                       path("data.txt"), "--dtype",       "f32",         "--memory",
                                       "2GiB",           "--max-seq-len", "16"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out + outcome.err;
  };
  EXPECT_THAT(notes({"--no-predict", "--spill-dir", path("nowhere")}),
              HasSubstr(path("nowhere") + "' is no directory"));
  EXPECT_THAT(notes({"--no-predict", "--clip-mode", "deferred", "--max-grad-norm", "0"}),
              HasSubstr("nothing to decide"));
  folder_.file("machine.json", R"({"threads": 16})");
  const std::vector<std::string> elsewhere{"--machine", path("machine.json"), "--threads", "4"};
  EXPECT_THAT(notes(elsewhere), HasSubstr("rates of 16 threads"));
  EXPECT_THAT(notes({"--machine", path("machine.json")}), testing::Not(HasSubstr("rates of 16 threads")));
}

// In memory alone, so that what is written is what commits write.
TEST_F(Verbs, PlanCountsWhatCommitsWrite) {
  folder_.file("machine.json", "{}");
  const auto plan = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{
        "plan", "--model",    path("model"), "--data",    path("data.txt"),     "--dtype",
        "f32",  "--memory",   "2GiB",        "--machine", path("machine.json"), "--max-seq-len",
        "16",   "--disk-tbw", "100"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  const auto number = [&](const std::string& save_steps, const std::string& key) {
    return nlohmann::json::parse(plan({"--save-steps=" + save_steps, "--json"})).value(key, 0.0);
  };
  EXPECT_EQ(number("-1", "disk_written_bytes_per_day"), 0);
  EXPECT_EQ(number("-1", "disk_life_years"), 0);
  const double some_seconds = 100000 * number("100000", "step_seconds");
  const double bytes = number("100000", "disk_committed_bytes_per_day") / 86400 * some_seconds;
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(number("100000", "disk_written_bytes_per_day"), number("100000", "disk_committed_bytes_per_day"));
  EXPECT_GT(number("100000", "disk_life_years"), 0);
  EXPECT_NEAR(number("0", "disk_committed_bytes_per_day"), bytes * 288, 1e-6 * bytes * 288);  // five minutes apart
  EXPECT_EQ(number("1", "disk_committed_bytes_per_day"), 0);                                  // steps write them
  EXPECT_NEAR(number("1", "disk_write_bytes_per_step"), bytes, 0.01 * bytes);
  EXPECT_THAT(plan({}), HasSubstr("of it by commits"));
}

TEST_F(Verbs, PlanWritesATraceOnlyWhereAFlagAsksForIt) {
  folder_.file("machine.json", "{}");
  folder_.file("measured.json", "of the run");
  folder_.file("run.yaml", "model: " + path("model") + "\ndata: [" + path("data.txt") + "]\nmachine: " +
                               path("machine.json") + "\nmax_seq_len: 16\ntrace: " + path("measured.json") + "\n");
  Outcome outcome = run({"plan", path("run.yaml")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(folder_.text_of("measured.json"), "of the run");
  outcome = run({"plan", path("run.yaml"), "--trace", path("predicted.json")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(folder_.text_of("measured.json"), "of the run");
  EXPECT_THAT(folder_.text_of("predicted.json"), HasSubstr("predicted"));
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

TEST_F(Verbs, TokenizeCountsWhatItReplacesAndRefusesUnknownIds) {
  const Outcome replaced = run({"tokenize", "--model", "bytes", "--text", "a\xff\xfe"});
  EXPECT_EQ(replaced.out, "97 239 191 189 239 191 189\n");
  EXPECT_THAT(replaced.err, HasSubstr("2 byte sequences"));
  EXPECT_EQ(run({"tokenize", "--model", "bytes", "--text", "a"}).err, "");
  expect_refused({"tokenize", "--model", "bytes", "--decode", "--ids", "1 257"}, "257 is beyond");
}

TEST_F(Verbs, GenerateTakesTheLargestCount) {
  const std::vector<std::string> words{"generate", "--model",          path("model"),         "--prompt",
                                       "a",        "--max-new-tokens", "9223372036854775807", "--memory",
                                       "1GiB"};
  const Outcome outcome = run(words);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

// Words of a SentencePiece tokenizer begin with a space, which its decoder takes from the first one of a text.
TEST_F(Verbs, GenerateKeepsTheSpaceBetweenThePromptAndWhatFollows) {
  const auto special = [](int id, const char* content) {
    return nlohmann::json{{"id", id},        {"content", content}, {"special", true},    {"single_word", false},
                          {"lstrip", false}, {"rstrip", false},    {"normalized", false}};
  };
  nlohmann::json tokenizer{{"version", "1.0"},
                           {"added_tokens", {special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")}},
                           {"normalizer", {{"type", "Prepend"}, {"prepend", "▁"}}},
                           {"pre_tokenizer", nullptr},
                           {"post_processor", nullptr},
                           {"decoder",
                            {{"type", "Sequence"},
                             {"decoders",
                              {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                               {{"type", "Fuse"}},
                               {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
                           {"model",
                            {{"type", "BPE"},
                             {"unk_token", "<unk>"},
                             {"ignore_merges", true},
                             {"vocab", {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}, {"▁a", 3}, {"▁b", 4}}},
                             {"merges", nlohmann::json::array()}}}};
  std::filesystem::create_directory(folder_ / "words");
  folder_.file("words/tokenizer.json", tokenizer.dump());
  ASSERT_EQ(run({"init", "--arch", "llama", "--tokenizer", path("words"), "--num-attention-heads", "2",
                 "--num-hidden-layers", "1", "--intermediate-size", "24", "--hidden-size", "16", path("words_model")})
                .code,
            0);
  const auto generate = [&](const std::string& seed) {
    return run({"generate", "--model", path("words_model"), "--prompt", "a", "--max-new-tokens", "8", "--temperature",
                "1", "--seed", seed});
  };
  std::size_t longest = 0;
  for (const std::string seed : {"1", "2", "3", "4"}) {
    const Outcome outcome = generate(seed);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, testing::MatchesRegex("a( [ab])*\n"));
    longest = std::max(longest, outcome.out.size());
  }
  EXPECT_GT(longest, 2U) << "something follows";
  folder_.file("words_model/generation_config.json", R"({"eos_token_id": [2, 3, 4]})");
  for (const std::string seed : {"1", "2", "3", "4"}) EXPECT_EQ(generate(seed).out, "a\n") << "each ends it";
}

// Added to a tokenizer, and not to the model.
TEST_F(Verbs, GenerateRefusesTokensThatTheModelDoesNotHave) {
  auto tokenizer = nlohmann::json::parse(folder_.text_of("model/tokenizer.json"));
  tokenizer["added_tokens"].push_back({{"id", 257},
                                       {"content", "<|user|>"},
                                       {"special", true},
                                       {"single_word", false},
                                       {"lstrip", false},
                                       {"rstrip", false},
                                       {"normalized", false}});
  folder_.file("model/tokenizer.json", tokenizer.dump());
  expect_refused({"generate", "--model", path("model"), "--prompt", "<|user|>a"}, "token id 257");
}

TEST_F(Verbs, APresetHasTheEndTokensOfTheTokenizerItIsGiven) {
  std::filesystem::create_directory(folder_ / "alone");
  folder_.file("alone/tokenizer.json", folder_.text_of("model/tokenizer.json"));  // whose text names an end token alone
  for (const std::string preset : {"gpt2-124m", "tinyllama-1.1b"}) {
    const bool gpt2 = preset == "gpt2-124m";
    const std::vector<std::string> sizes =
        gpt2 ? std::vector<std::string>{"--n-embd", "16", "--n-layer", "1", "--n-head", "2", "--vocab-size", "300"}
             : std::vector<std::string>{"--hidden-size",         "16", "--num-hidden-layers",   "1",
                                        "--num-attention-heads", "2",  "--num-key-value-heads", "2",
                                        "--intermediate-size",   "24", "--vocab-size",          "300"};
    std::vector<std::string> words{"init", "--preset", preset, "--tokenizer", path("alone"), path(preset)};
    words.insert(words.end(), sizes.begin(), sizes.end());
    ASSERT_EQ(run(words).code, 0);
    const auto config = nlohmann::json::parse(folder_.text_of(preset + "/config.json"));
    EXPECT_EQ(config["eos_token_id"], 256) << preset;
    EXPECT_TRUE(config.value("bos_token_id", nlohmann::json()).is_null()) << preset << " " << config["bos_token_id"];
  }
}

TEST_F(Verbs, InspectSaysWhereToLook) {
  expect_refused({"inspect", "--model", path("model"), "--tensor", "zzz"}, "leave --tensor out");
  expect_refused({"inspect", "--model", path("model"), "--tensor", "model.norm.weight", "--json"}, "--json");
}

}  // namespace
}  // namespace spillway
