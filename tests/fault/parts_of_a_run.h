// A small run in parts, each stopped or killed, whose losses are those of the run in one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "golden/model_folder.h"
#include "one_choice.h"
#include "recording_observer.h"
#include "scratch_folder.h"
#include "session/run_store.h"
#include "session/session.h"
#include "telemetry/metrics.h"

namespace spillway {

struct Killed {};

// Stops a run in order after a step, or kills it, as far as its thread goes.
class EndAfter final : public RecordingObserver {
 public:
  EndAfter(RunControl& control, std::int64_t step, bool kills) : control_(control), step_(step), kills_(kills) {}
  void step(const StepRecord& record) override {
    RecordingObserver::step(record);
    if (record.step == step_ && kills_) throw Killed();
    if (record.step == step_) control_.stop = 15;
  }

 private:
  RunControl& control_;
  std::int64_t step_;
  bool kills_;
};

class PartsOfARun : public testing::Test {
 protected:
  void SetUp() override {
    golden::write_model(scratch_ / "model", golden::llama_of(2, 64, 300), "");
    golden::write_tokens(scratch_ / "tokens.npy", 3000, 300);
    options_.model = (scratch_ / "model").string();
    options_.data = {(scratch_ / "tokens.npy").string()};
    options_.max_steps = 9;
    options_.per_device_train_batch_size = 1;
    options_.max_seq_len = 32;
    options_.learning_rate = 1e-3;
    options_.dtype = "f32";
    leave_one_choice_under_sanitizer(options_);
    options_.threads = 1;
    options_.piece_elements = 16384;
    options_.page_size_bytes = 16384;
    options_.memory_bytes = std::int64_t{1} << 30;
    options_.save_steps = 1;
    options_.output_dir = (scratch_ / "whole").string();
    RecordingObserver observer;
    run_train(options_, observer);
    for (const StepRecord& step : observer.steps) expected_[step.step] = step.loss;
    options_.output_dir = (scratch_ / "run").string();
  }

  // Runs until `stop`, 0: to the end, and returns what was noted. Every loss is that of the uninterrupted run.
  std::vector<std::string> part(std::int64_t first, std::int64_t stop, bool kills = false) {
    RunControl control;
    EndAfter observer(control, stop, kills);
    try {
      run_train(options_, observer, &control);
    } catch (const Killed&) {
    }
    EXPECT_FALSE(observer.steps.empty());
    if (!observer.steps.empty()) {
      EXPECT_EQ(observer.steps.front().step, first);
      EXPECT_EQ(observer.steps.back().step, stop == 0 ? options_.max_steps : stop);
    }
    for (const StepRecord& step : observer.steps) EXPECT_EQ(step.loss, expected_.at(step.step)) << "step " << step.step;
    return observer.notes;
  }

  std::string refusal() {
    RecordingObserver observer;
    try {
      run_train(options_, observer);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }

  static std::vector<std::filesystem::path> slot_files(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".slots") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  static void flip(const std::filesystem::path& path, std::int64_t at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const int byte = file.get();
    file.seekp(at);
    file.put(static_cast<char>(byte ^ 1));
  }

  // As a power loss may leave metrics.jsonl: with the records of these steps alone.
  void keep_records(const std::set<std::int64_t>& steps) {
    std::istringstream lines(scratch_.text_of("run/metrics.jsonl"));
    std::string kept;
    for (std::string line; std::getline(lines, line);) {
      if (steps.contains(step_of_record(line))) kept += line + '\n';
    }
    scratch_.file("run/metrics.jsonl", kept);
  }

  // Flips a bit of a slot that the newest commit of the run names, and the one before, if there is one, does not.
  // Returns the step of that one.
  std::int64_t damage_newest_commit() {
    const StoreRecord record = read_store_records(options_.output_dir).front();
    const auto slots = open_store(*find_slot_set(record, record.directories));
    const OpenedCatalogue catalogue = read_catalogue(*slots);
    std::set<SlotId> others;
    for (std::size_t c = 0; c + 1 < catalogue.commits.size(); ++c)
      others.insert(catalogue.commits[c].slots.begin(), catalogue.commits[c].slots.end());
    const Manifest newest = read_manifest(*slots, catalogue.commits.back().entry);
    for (const ManifestExtent& extent : newest.extents) {
      const SlotId slot = slots->slot_at(extent.file, extent.index);
      if (others.contains(slot)) continue;
      flip(slots->path(extent.file), slots->location(slot).offset_bytes + 100);
      return others.empty() ? 0 : catalogue.commits.front().entry.step;
    }
    ADD_FAILURE() << "both commits name the same slots";
    return 0;
  }

  ScratchFolder scratch_;
  TrainOptions options_;
  std::map<std::int64_t, float> expected_;
};

}  // namespace spillway
