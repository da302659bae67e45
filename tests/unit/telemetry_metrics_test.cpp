// metrics.jsonl: names, bits, failures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <random>

#include "base/error.h"
#include "telemetry/metrics.h"

namespace spillway {
namespace {

TEST(Metrics, NamesEveryField) {
  StepRecord r;
  r.step = 3;
  r.tokens = 1024;
  const auto json = nlohmann::json::parse(json_of(r));
  for (const char* name : {"step", "loss", "grad_norm", "learning_rate", "tokens", "step_seconds", "tokens_per_second",
                           "rss_bytes", "disk_read_bytes", "disk_write_bytes"})
    EXPECT_TRUE(json.contains(name)) << name;
  EXPECT_FALSE(json.contains("eval_loss"));
  EXPECT_FALSE(json.contains("seconds_left"));
  r.eval_loss = 1.5;
  r.seconds_left = 10;
  const auto more = nlohmann::json::parse(json_of(r));
  EXPECT_EQ(more["eval_loss"], 1.5);
  EXPECT_EQ(more["seconds_left"], 10);
}

TEST(Metrics, SaysWhereTimeBytesAndMemoryWent) {
  StepRecord r;
  r.step_seconds = 2;
  EXPECT_FALSE(nlohmann::json::parse(json_of(r)).contains("phase_seconds"));
  r.lower_bound_seconds = 1.5;
  r.predicted_seconds = 1.75;
  r.clip = "after";
  r.clipped = true;
  r.committed_step = 7;
  StepTotals& totals = r.totals.emplace();
  totals.phase_seconds = {1, 2, 3, 4, 5, 6};
  totals.wait_seconds = {0.1, 0.2, 0.3, 0.4, 0.5};
  totals.read_bytes = {1, 2, 3, 4, 0};
  totals.write_bytes = {5, 6, 7, 8, 0};
  totals.memory_bytes = {10, 20, 30, 40, 50};
  const auto json = nlohmann::json::parse(json_of(r));
  EXPECT_EQ(json["share_of_bound"], 0.75);
  EXPECT_EQ(json["predicted_seconds"], 1.75);
  EXPECT_EQ(json["clip"], "after");
  EXPECT_EQ(json["clipped"], true);
  EXPECT_EQ(json["committed_step"], 7);
  EXPECT_EQ(json["phase_seconds"].dump(), R"({"backward":4,"forward":1,"head":2,"other":6,"recompute":3,"update":5})");
  EXPECT_EQ(json["wait_seconds"]["read_weights"], 0.1);
  EXPECT_EQ(json["wait_seconds"]["write_weights"], 0.5);
  EXPECT_EQ(json["wait_seconds"].size(), disk_wait_cause_count) << "of a device there is nothing";
  EXPECT_EQ(json["read_bytes"].dump(), R"({"activations":4,"gradients":3,"optimizer":2,"weights":1})");
  EXPECT_EQ(json["write_bytes"]["weights"], 5);
  EXPECT_EQ(json["memory_bytes"]["unused"], 50);
}

TEST(Metrics, FloatsReadBackToTheSameBits) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 3000; ++i) {
    const auto loss = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    const auto rate = std::bit_cast<double>((std::uint64_t{random()} << 32) | random());
    if (!std::isfinite(loss) || !std::isfinite(rate)) continue;
    StepRecord r;
    r.loss = loss;
    r.learning_rate = rate;
    const auto json = nlohmann::json::parse(json_of(r));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(static_cast<float>(json["loss"].get<double>())),
              std::bit_cast<std::uint32_t>(loss));
    EXPECT_EQ(std::bit_cast<std::uint64_t>(json["learning_rate"].get<double>()), std::bit_cast<std::uint64_t>(rate));
  }
}

TEST(Metrics, WhatIsNoNumberIsNull) {
  StepRecord r;
  r.loss = std::numeric_limits<float>::quiet_NaN();
  r.tokens_per_second = std::numeric_limits<double>::infinity();
  const auto json = nlohmann::json::parse(json_of(r));
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_TRUE(json["tokens_per_second"].is_null());
}

TEST(Metrics, EachLineIsInTheFileWhenWriteReturns) {
  const auto path = std::filesystem::path(testing::TempDir()) / ("metrics_" + std::to_string(::getpid()) + ".jsonl");
  {
    MetricsFile file(path);
    for (std::int64_t step = 1; step <= 3; ++step) {
      StepRecord r;
      r.step = step;
      file.write(r);
      std::ifstream in(path);
      std::string line;
      std::int64_t last = 0;
      while (std::getline(in, line)) last = nlohmann::json::parse(line)["step"].get<std::int64_t>();
      EXPECT_EQ(last, step);
    }
  }
  std::filesystem::remove(path);
}

TEST(Metrics, GoesOnAfterTheStepThatIsKept) {
  const auto path = std::filesystem::path(testing::TempDir()) / ("kept_" + std::to_string(::getpid()) + ".jsonl");
  const auto steps_in = [&] {
    std::ifstream in(path);
    std::vector<std::int64_t> steps;
    for (std::string line; std::getline(in, line);) steps.push_back(step_of_record(line));
    return steps;
  };
  const auto write = [](MetricsFile& file, std::int64_t step) {
    StepRecord r;
    r.step = step;
    file.write(r);
  };
  {
    MetricsFile file(path);
    for (std::int64_t step = 1; step <= 12; ++step) write(file, step);
  }
  std::ofstream(path, std::ios::app) << "{\"step\": 13, \"loss\"";  // as a killed process leaves it
  {
    MetricsFile file(path, 12);
    EXPECT_EQ(steps_in().size(), 12U);
  }
  {
    MetricsFile file(path, 10);
    write(file, 11);
  }
  EXPECT_EQ(steps_in(), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  MetricsFile anew(path);
  EXPECT_TRUE(steps_in().empty());
  std::filesystem::remove(path);
}

TEST(Metrics, AFullOrMissingDiskIsADeviceError) {
  EXPECT_THROW(MetricsFile("/no/such/folder/metrics.jsonl"), DeviceError);
  MetricsFile full("/dev/full");
  EXPECT_THROW(full.write(StepRecord()), DeviceError);
}

}  // namespace
}  // namespace spillway
