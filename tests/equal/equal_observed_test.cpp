// What a run reports of itself agrees with itself and with the kernel, and watching it changes nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "base/error.h"
#include "golden/model_folder.h"
#include "recording_observer.h"
#include "scratch_folder.h"
#include "session/session.h"
#include "telemetry/flight_record.h"
#include "trace_checker.h"

namespace spillway {
namespace {

class Observed : public testing::Test {
 protected:
  void SetUp() override {
    const auto config = nlohmann::json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "vocab_size": 500, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
      "tie_word_embeddings": false})");
    golden::write_model(scratch_ / "model", config, "");
    golden::write_tokens(scratch_ / "tokens.npy", 4000, 500);
    options_.model = (scratch_ / "model").string();
    options_.data = {(scratch_ / "tokens.npy").string()};
    options_.output_dir = (scratch_ / "out").string();
    options_.max_steps = 4;
    options_.per_device_train_batch_size = 2;
    options_.gradient_accumulation_steps = 2;
    options_.max_seq_len = 64;
    options_.dtype = "f32";
    options_.threads = 2;
    options_.page_size_bytes = 16384;
    options_.trace = (scratch_ / "trace.json").string();
    options_.trace_steps = 5;
    options_.memory_bytes = std::int64_t{1} << 40;
    const std::int64_t smallest = run_plan(options_).min_memory_bytes;
    options_.memory_bytes = smallest;
  }

  std::vector<StepRecord> run() {
    RecordingObserver observer;
    run_train(options_, observer);
    return observer.steps;
  }

  std::vector<nlohmann::json> metrics() const {
    std::vector<nlohmann::json> lines;
    std::ifstream file(std::filesystem::path(options_.output_dir) / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  ScratchFolder scratch_;
  TrainOptions options_;
};

double sum_of(const nlohmann::json& object) {
  double sum = 0;
  for (const auto& [key, value] : object.items()) sum += value.get<double>();
  return sum;
}

TEST_F(Observed, TheSumsOfEachStepAgree) {
  run();
  const auto lines = metrics();
  ASSERT_EQ(lines.size(), 4U);
  const FlightRecord record = read_flight(options_.output_dir);
  double moved = 0;
  for (const auto& line : lines) {
    EXPECT_NEAR(sum_of(line["phase_seconds"]), line["step_seconds"].get<double>(), 1e-6);
    EXPECT_NEAR(sum_of(line["wait_seconds"]), line["stall_seconds"].get<double>(), 1e-9);
    EXPECT_EQ(sum_of(line["read_bytes"]), line["disk_read_bytes"].get<double>());
    EXPECT_EQ(sum_of(line["write_bytes"]), line["disk_write_bytes"].get<double>());
    EXPECT_EQ(sum_of(line["memory_bytes"]), static_cast<double>(record.catalog.arena_bytes));
    for (const char* phase : {"forward", "backward", "update"}) EXPECT_GT(line["phase_seconds"][phase], 0) << phase;
    moved += line["disk_read_bytes"].get<double>();
  }
  EXPECT_GT(moved, 0) << "at the smallest budget something moves";
}

TEST_F(Observed, TheTraceIsStrictAndHasTheBytesOfTheMetrics) {
  run();
  TraceChecker trace(scratch_.text_of("trace.json"));
  EXPECT_THAT(trace.faults, testing::IsEmpty());
  EXPECT_EQ(trace.tracks["step"].size(), 4U);
  EXPECT_GE(trace.tracks["phase"].size(), 4U * 3U);
  EXPECT_GT(trace.flow_count(), 0U);
  double read = 0;
  double written = 0;
  for (const auto& line : metrics()) {
    read += line["disk_read_bytes"].get<double>();
    written += line["disk_write_bytes"].get<double>();
  }
  // Loading and saving move bytes outside of any plan.
  const auto bytes = [&](const char* track) {
    double sum = 0;
    for (const TraceChecker::Slice& slice : trace.tracks[track])
      sum += slice.args["instr"] < 0 ? 0 : slice.args["bytes"].get<double>();
    return sum;
  };
  EXPECT_EQ(bytes("disk read"), read);
  EXPECT_EQ(bytes("disk write"), written);
  const std::int64_t arena = read_flight(options_.output_dir).catalog.arena_bytes;
  for (const auto& sample : trace.counters["memory, bytes"]) EXPECT_EQ(sum_of(sample), static_cast<double>(arena));
  const std::int64_t updates =
      std::count_if(trace.tracks["compute"].begin(), trace.tracks["compute"].end(),
                    [](const TraceChecker::Slice& slice) { return slice.args.value("phase", "") == "update"; });
  EXPECT_GT(updates, 0);
}

TEST_F(Observed, TheTraceKeepsTheLastSteps) {
  options_.trace_steps = 2;
  run();
  TraceChecker trace(scratch_.text_of("trace.json"));
  EXPECT_THAT(trace.faults, testing::IsEmpty());
  ASSERT_EQ(trace.tracks["step"].size(), 2U);
  EXPECT_EQ(trace.tracks["step"][0].args["step"], 3);
}

TEST_F(Observed, WatchingChangesNoBit) {
  const std::vector<StepRecord> watched = run();
  options_.telemetry = false;
  options_.output_dir = (scratch_ / "dark").string();
  options_.trace = "";
  const std::vector<StepRecord> dark = run();
  ASSERT_EQ(watched.size(), dark.size());
  for (std::size_t s = 0; s < dark.size(); ++s) {
    EXPECT_EQ(watched[s].loss, dark[s].loss);
    EXPECT_EQ(watched[s].grad_norm, dark[s].grad_norm);
    EXPECT_FALSE(dark[s].totals.has_value());
  }
  EXPECT_EQ(scratch_.text_of("out/model.safetensors"), scratch_.text_of("dark/model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "dark/flight.bin"));
}

TEST_F(Observed, TheFlightRecordOfARunThatFinishedSaysSo) {
  run();
  const std::vector<std::string> story = story_of(read_flight(options_.output_dir));
  EXPECT_THAT(story, testing::Contains(testing::HasSubstr("the run finished")));
  EXPECT_THAT(story, testing::Contains("4 of 4 steps were done"));
}

}  // namespace
}  // namespace spillway
