// What may happen to the files of a run between its stop and its going on: bits that flip, folders that are copied or
// moved, disks that are missing. It goes on with the bits of an uninterrupted run, or says in a sentence why not; it
// never begins anew in silence, and never removes what is not its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "base/error.h"
#include "golden/model_folder.h"
#include "recording_observer.h"
#include "scratch_folder.h"
#include "session/checkpoint_verbs.h"
#include "session/portable.h"
#include "session/run_branches.h"
#include "session/run_store.h"
#include "session/session.h"
#include "store/slot_file.h"
#include "telemetry/metrics.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;

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

class FaultResume : public testing::Test {
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

  void go_back_to(std::int64_t step);

  std::string refusal() {
    RecordingObserver observer;
    try {
      run_train(options_, observer);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }

  static std::vector<fs::path> slot_files(const fs::path& folder) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".slots") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  static void flip(const fs::path& path, std::int64_t at) {
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

TEST_F(FaultResume, ADamagedCommitIsPassedOverForTheOneBefore) {
  options_.save_total_limit = 2;
  part(1, 5);
  const std::int64_t before = damage_newest_commit();  // a slow disk makes no commit of some steps
  EXPECT_THAT(part(before + 1, 0), Contains(testing::AllOf(HasSubstr("passed over"), HasSubstr("step 5"))));
}

TEST_F(FaultResume, WithNoOtherCommitItIsRefusedWithWhatIsDamaged) {
  part(1, 5);
  const std::string metrics = scratch_.text_of("run/metrics.jsonl");
  damage_newest_commit();
  EXPECT_THAT(refusal(),
              testing::AllOf(HasSubstr("no commit"), HasSubstr("do not verify"), HasSubstr("to start anew")));
  EXPECT_EQ(scratch_.text_of("run/metrics.jsonl"), metrics);
  EXPECT_EQ(slot_files(scratch_ / "run").size(), 1U);
}

TEST_F(FaultResume, WithNoOtherCommitAnExportServes) {
  options_.export_steps = 2;
  part(1, 5);
  damage_newest_commit();
  part(5, 0);
}

TEST_F(FaultResume, AnExportServesWhereTheRunBeganElsewhere) {
  options_.export_steps = 2;
  part(1, 5);
  options_.resume_from_checkpoint = (scratch_ / "run/checkpoint-4").string();
  options_.output_dir = (scratch_ / "second").string();
  options_.save_steps = -1;
  part(5, 7);
  options_.resume_from_checkpoint = "auto";
  part(7, 0);
}

TEST_F(FaultResume, AnExportServesWhereStepsBeforeItHaveNoRecords) {
  options_.export_steps = 2;
  part(1, 5);
  damage_newest_commit();
  keep_records({1, 5});
  part(5, 0);
}

// Also where the run has come as far again, and without commits, which would say where it stands.
TEST_F(FaultResume, AnExportThatTheRunHasLeftIsPassedOver) {
  const auto is_passed_over =
      Contains(testing::AllOf(HasSubstr("passed over"), HasSubstr("checkpoint-6"), HasSubstr("has left it")));
  options_.export_steps = 3;
  options_.save_steps = -1;
  part(1, 7);
  options_.export_steps = 0;
  options_.resume_from_checkpoint = (scratch_ / "run/checkpoint-3").string();
  part(4, 5);
  options_.resume_from_checkpoint = "auto";
  EXPECT_THAT(part(4, 8), is_passed_over);
  options_.export_steps = 5;
  EXPECT_THAT(part(4, 7), is_passed_over);
  EXPECT_THAT(part(6, 7), is_passed_over) << "and its own, of step 5, is not";
  options_.resume_from_checkpoint = (scratch_ / "run/checkpoint-6").string();
  part(7, 8);
  options_.resume_from_checkpoint = "auto";
  part(7, 0);
}

// After the newest commits, which are retained together; without saving anything.
void FaultResume::go_back_to(std::int64_t step) {
  options_.resume_from_checkpoint = (scratch_ / fmt::format("run/checkpoint-{}", step)).string();
  options_.save_steps = 100;
  options_.export_steps = 0;
  part(step + 1, step + 2, true);
  options_.resume_from_checkpoint = "auto";
}

TEST_F(FaultResume, ACommitThatTheRunHasLeftServesWhereNothingElseDoes) {
  options_.export_steps = 3;
  part(1, 7);
  go_back_to(3);
  EXPECT_THAT(part(4, 6, true), Contains(testing::AllOf(HasSubstr("commit of step 7"), HasSubstr("has left it"))));
  fs::remove_all(scratch_ / "run/checkpoint-3");
  EXPECT_THAT(part(8, 0), Contains(HasSubstr("that it had left")));
}

TEST_F(FaultResume, AnOlderCommitThatIsTheRunsOwnGoesBeforeANewerOneThatItHasLeft) {
  options_.page_size_bytes = 262144;
  options_.export_steps = 4;
  options_.save_total_limit = 3;
  part(1, 5);
  go_back_to(4);
  fs::remove_all(scratch_ / "run/checkpoint-4");
  options_.save_steps = 1;
  part(5, 7);
  part(8, 0);
}

TEST_F(FaultResume, PruningKeepsWhatTheRunGoesOnFrom) {
  options_.page_size_bytes = 262144;
  options_.export_steps = 4;
  options_.save_total_limit = 3;
  part(1, 5);
  go_back_to(4);
  fs::remove_all(scratch_ / "run/checkpoint-4");
  prune_checkpoints(scratch_ / "run", 1);
  const CheckpointReport kept = list_checkpoints(scratch_ / "run");
  ASSERT_EQ(kept.rows.size(), 1U);
  EXPECT_EQ(kept.rows.front().step, 4);
  EXPECT_FALSE(kept.rows.front().left);
  part(5, 0);
}

TEST_F(FaultResume, PruningRemovesNothingForAnExportThatDoesNotServe) {
  options_.export_steps = 4;
  part(1, 5);
  go_back_to(4);
  scratch_.file("run/checkpoint-4/spillway_state.json", "{");
  prune_checkpoints(scratch_ / "run", 1);
  options_.save_steps = 1;
  EXPECT_THAT(part(6, 0), Contains(HasSubstr("that it had left")));
}

TEST_F(FaultResume, PruningCountsExportsOfWeightsAloneByThemselves) {
  options_.export_steps = 4;
  part(1, 5);
  options_.resume_from_checkpoint = (scratch_ / "run/checkpoint-4").string();
  options_.save_steps = -1;
  options_.export_steps = 3;
  options_.save_only_model = true;
  part(5, 7);
  prune_checkpoints(scratch_ / "run", 1);
  EXPECT_TRUE(fs::exists(scratch_ / "run/checkpoint-6"));
  options_.resume_from_checkpoint = "auto";
  part(5, 0);
}

TEST_F(FaultResume, WhatLedToABranchThatWasLeftAndTakenUpAgainIsItsOwn) {
  options_.export_steps = 2;
  options_.save_steps = -1;
  part(1, 7);
  options_.export_steps = 5;
  const auto go_on_from = [&](std::int64_t step, std::int64_t stop) {
    options_.resume_from_checkpoint = (scratch_ / fmt::format("run/checkpoint-{}", step)).string();
    part(step + 1, stop);
  };
  go_on_from(4, 6);
  go_on_from(6, 7);
  go_on_from(5, 6);
  std::map<std::int64_t, bool> left;
  for (const CheckpointRow& row : list_checkpoints(scratch_ / "run").rows) left[row.step] = row.left;
  EXPECT_EQ(left, (std::map<std::int64_t, bool>{{2, false}, {4, false}, {5, false}, {6, true}}));
  fs::remove_all(scratch_ / "run/checkpoint-5");
  options_.resume_from_checkpoint = "auto";
  options_.export_steps = 0;
  part(5, 0);
  options_.max_steps = 12;
  EXPECT_THAT(refusal(), HasSubstr("checkpoint-4 to go on"));
}

TEST_F(FaultResume, AnExportFromWhichTheRunWentOnIsNotMadeAgain) {
  options_.export_steps = 4;
  part(1, 4);
  go_back_to(4);
  options_.export_steps = 4;
  EXPECT_THAT(part(5, 0), testing::Not(Contains(HasSubstr("is not there"))));
}

TEST_F(FaultResume, ARunThatWentOnFromAnotherAndSavedNothingIsNotBegunAnew) {
  options_.export_steps = 4;
  part(1, 5);
  options_.output_dir = (scratch_ / "second").string();
  go_back_to(4);
  EXPECT_THAT(refusal(), testing::AllOf(HasSubstr("checkpoint of step 4"), HasSubstr("left nothing to go on from")));
  prune_checkpoints(scratch_ / "second", 0);
  EXPECT_TRUE(slot_files(scratch_ / "second").empty());
}

// Killed when its slots are there and its weights are not.
class KilledWhileLoading final : public RecordingObserver {
 public:
  void note(std::string_view sentence) override {
    if (sentence.starts_with("products: ")) throw Killed();
  }
};

TEST_F(FaultResume, ARunThatWasKilledWhileItLoadedACheckpointIsNotBegunAnew) {
  options_.export_steps = 4;
  part(1, 5);
  options_.output_dir = (scratch_ / "second").string();
  options_.resume_from_checkpoint = (scratch_ / "run/checkpoint-4").string();
  KilledWhileLoading observer;
  EXPECT_THROW(run_train(options_, observer), Killed);
  options_.resume_from_checkpoint = "auto";
  EXPECT_THAT(refusal(), HasSubstr("left nothing to go on from"));
}

TEST_F(FaultResume, WhatAnEmptiedFolderSaysOfBranchesIsForgotten) {
  options_.export_steps = 4;
  part(1, 5);
  fs::create_directory(scratch_ / "second");
  options_.output_dir = (scratch_ / "second").string();
  options_.save_steps = -1;
  go_back_to(4);
  for (const char* const name : {"metrics.jsonl", "store.json"}) fs::remove(scratch_ / "second" / name);
  options_.resume_from_checkpoint = "none";
  options_.save_steps = 1;
  part(1, 3);
  options_.resume_from_checkpoint = "auto";
  EXPECT_THAT(part(4, 0), testing::Not(Contains(HasSubstr("left"))));
}

TEST_F(FaultResume, ABranchesFileOfSomethingElseIsInTheWay) {
  fs::create_directory(scratch_ / "run");
  scratch_.file("run/branches.json", "{\"mine\": 1}");
  EXPECT_THAT(refusal(), HasSubstr("already holds branches.json"));
  EXPECT_EQ(scratch_.text_of("run/branches.json"), "{\"mine\": 1}");
}

TEST_F(FaultResume, WithoutTheFileOfItsBranchesARunGoesOnFromTheNewest) {
  options_.export_steps = 3;
  options_.save_steps = -1;
  part(1, 7);
  options_.resume_from_checkpoint = (scratch_ / "run/checkpoint-3").string();
  part(4, 5);
  options_.resume_from_checkpoint = "auto";
  scratch_.file("run/branches.json", "{}");
  EXPECT_THAT(list_checkpoints(scratch_ / "run").notes, Contains(HasSubstr("branches.json")));
  EXPECT_THAT(refusal(), testing::AllOf(HasSubstr("branches.json"), HasSubstr("remove it")));
  fs::remove(scratch_ / "run" / run_branches_name);
  part(7, 0);
}

TEST_F(FaultResume, ExportsOfWhichNoneServesAreNoReasonToBeginAnew) {
  options_.export_steps = 4;
  options_.save_steps = -1;
  part(1, 5);
  const auto is_refused = [&] {
    const std::string metrics = scratch_.text_of("run/metrics.jsonl");
    EXPECT_THAT(refusal(), testing::AllOf(HasSubstr("checkpoint-4"), HasSubstr("resume_from_checkpoint")));
    EXPECT_EQ(scratch_.text_of("run/metrics.jsonl"), metrics);
  };
  flip(scratch_ / "run/checkpoint-4/model.safetensors", 5000);
  is_refused();
  flip(scratch_ / "run/checkpoint-4/model.safetensors", 5000);
  keep_records({1, 2});
  part(5, 0);
}

TEST_F(FaultResume, ACopyOfTheFolderIsARunOfItsOwn) {
  part(1, 3);
  fs::copy(scratch_ / "run", scratch_ / "copy", fs::copy_options::recursive);
  options_.output_dir = (scratch_ / "copy").string();
  part(4, 0);
  options_.output_dir = (scratch_ / "run").string();
  part(4, 0);
}

TEST_F(FaultResume, ACopyWithoutTheSlotsLeavesThemToTheirRun) {
  fs::create_directory(scratch_ / "disk");
  options_.spill_dir = {(scratch_ / "disk").string()};
  part(1, 3);
  fs::copy(scratch_ / "run", scratch_ / "copy", fs::copy_options::recursive);
  options_.output_dir = (scratch_ / "copy").string();
  part(4, 0);
  options_.output_dir = (scratch_ / "run").string();
  part(4, 0);
  EXPECT_TRUE(slot_files(scratch_ / "disk").empty());
}

TEST_F(FaultResume, AMovedFolderGoesOn) {
  part(1, 3);
  fs::rename(scratch_ / "run", scratch_ / "moved");
  options_.output_dir = (scratch_ / "moved").string();
  EXPECT_EQ(list_checkpoints(scratch_ / "moved").rows.size(), 1U);
  part(4, 6);
  part(7, 0);
}

TEST_F(FaultResume, SlotsMovedToTheSpillDirectoryOfTheNextRunAreFound) {
  fs::create_directory(scratch_ / "disk");
  options_.spill_dir = {(scratch_ / "disk").string()};
  part(1, 3);
  fs::rename(scratch_ / "disk", scratch_ / "larger disk");
  options_.spill_dir = {(scratch_ / "larger disk").string()};
  part(4, 0);
}

TEST_F(FaultResume, SlotsLieOnDisksInProportionToWhatTheseCarry) {
  nlohmann::json disks;
  for (const auto& [name, rate] : {std::pair("disk", 2e9), {"disk 2", 1e9}}) {
    fs::create_directory(scratch_ / name);
    const std::string directory = (scratch_ / name).string();
    options_.spill_dir.push_back(directory);
    disks.push_back({{"directory", directory}, {"device", name}, {"read_bytes_per_second", rate}});
  }
  options_.machine = scratch_.file("machine.json", nlohmann::json{{"disks", disks}}.dump()).string();
  part(1, 3);
  const auto slots_in = [&](const std::string& name) {
    const std::vector<fs::path> files = slot_files(scratch_ / name);
    EXPECT_EQ(files.size(), 1U);
    return (static_cast<std::int64_t>(fs::file_size(files.at(0))) - slot_file_head_bytes) / options_.page_size_bytes;
  };
  EXPECT_GT(slots_in("disk 2"), 10);
  EXPECT_NEAR(static_cast<double>(slots_in("disk")), 2 * static_cast<double>(slots_in("disk 2")), 2);
  part(4, 0);
}

TEST_F(FaultResume, AMissingDiskIsNamedAndNothingIsLost) {
  fs::create_directory(scratch_ / "disk");
  fs::create_directory(scratch_ / "disk 2");
  options_.spill_dir = {(scratch_ / "disk").string(), (scratch_ / "disk 2").string()};
  part(1, 3);
  const std::string metrics = scratch_.text_of("run/metrics.jsonl");
  fs::rename(scratch_ / "disk 2", scratch_ / "unmounted");
  fs::create_directory(scratch_ / "disk 2");
  EXPECT_THAT(refusal(), testing::AllOf(HasSubstr("file 1 of 2"), HasSubstr("disk 2"), HasSubstr("mount")));
  fs::rename(scratch_ / "disk", scratch_ / "unmounted too");
  fs::create_directory(scratch_ / "disk");
  EXPECT_THAT(refusal(), testing::AllOf(HasSubstr("file 0 of 2"), HasSubstr("disk")));
  EXPECT_EQ(scratch_.text_of("run/metrics.jsonl"), metrics);
  for (const char* const name : {"disk", "disk 2"}) fs::remove_all(scratch_ / name);
  fs::rename(scratch_ / "unmounted", scratch_ / "disk 2");
  fs::rename(scratch_ / "unmounted too", scratch_ / "disk");
  part(4, 0);
}

TEST_F(FaultResume, ADamagedRecordOfTheStoreIsNoReasonToBeginAnew) {
  part(1, 3);
  const std::string record = scratch_.text_of("run/store.json");
  std::string damaged = record;
  char& digit = damaged[damaged.find("\"run\": \"") + 8];
  digit = digit == '1' ? '2' : '1';
  scratch_.file("run/store.json", damaged);
  EXPECT_THAT(refusal(), HasSubstr("cannot be reached"));
  scratch_.file("run/store.json", record);
  part(4, 0);
}

TEST_F(FaultResume, SlotsOfAnotherRunInTheFolderStay) {
  fs::create_directory(scratch_ / "run");
  TrainOptions other = options_;
  other.output_dir = (scratch_ / "other").string();
  other.spill_dir = {(scratch_ / "run").string()};
  std::swap(options_, other);
  part(1, 3);
  std::swap(options_, other);
  part(1, 0);
  std::swap(options_, other);
  part(4, 0);
}

TEST_F(FaultResume, AnOlderCheckpointThatWasGivenBeginsABranch) {
  options_.export_steps = 3;
  part(1, 7);
  options_.resume_from_checkpoint = (scratch_ / "run/checkpoint-3").string();
  part(4, 4);
  options_.resume_from_checkpoint = "auto";
  part(5, 0);  // not from checkpoint-6
}

TEST_F(FaultResume, ABranchGoesOnBesideLaterCommitsOfTheOneItLeft) {
  options_.export_steps = 3;
  part(1, 7);
  const StoreRecord left = read_store_records(options_.output_dir).front();
  const fs::path slots = slot_files(scratch_ / "run").front();
  fs::copy(slots, scratch_ / "left");
  options_.resume_from_checkpoint = (scratch_ / "run/checkpoint-3").string();
  part(4, 5);
  fs::rename(scratch_ / "left", slots);  // as if a kill had come before it was removed
  write_store_records(options_.output_dir, {read_store_records(options_.output_dir).front(), left});
  options_.resume_from_checkpoint = "auto";
  part(6, 0);
  EXPECT_TRUE(slot_files(scratch_ / "run").empty());
}

TEST_F(FaultResume, ExportsOfTheSameBranchGoOnWhereCommitsEnded) {
  part(1, 2);
  options_.save_steps = -1;
  options_.export_steps = 4;
  part(3, 5);
  part(5, 0);
}

TEST_F(FaultResume, AnExportThatAKillCutShortIsMadeWhereTheRunGoesOn) {
  options_.export_steps = 3;
  const TrainOptions given = options_;
  const auto goes_on = [&](const std::string& name, const auto& change) {
    options_ = given;
    options_.output_dir = (scratch_ / name).string();
    part(1, 3);
    const std::string model = scratch_.text_of(name + "/checkpoint-3/model.safetensors");
    const std::string optimizer = scratch_.text_of(name + "/checkpoint-3/optimizer.safetensors");
    fs::rename(scratch_ / name / "checkpoint-3", scratch_ / name / ".checkpoint-3.incomplete");
    change(options_);
    EXPECT_THAT(part(4, 0), Contains(HasSubstr("the export of step 3 is not there"))) << name;
    EXPECT_TRUE(scratch_.text_of(name + "/checkpoint-3/model.safetensors") == model) << name;
    EXPECT_TRUE(scratch_.text_of(name + "/checkpoint-3/optimizer.safetensors") == optimizer) << name;
    EXPECT_FALSE(fs::exists(scratch_ / name / ".checkpoint-3.incomplete"));
  };
  goes_on("in the same slots", [](TrainOptions&) {});
  goes_on("in other slots", [](TrainOptions& options) { options.page_size_bytes = 8192; });
  goes_on("without commits", [](TrainOptions& options) { options.save_steps = -1; });
}

TEST_F(FaultResume, AnExportThatARunIsBeyondIsToldToBeLost) {
  options_.export_steps = 3;
  part(1, 5);
  fs::rename(scratch_ / "run/checkpoint-3", scratch_ / "run/.checkpoint-3.incomplete");
  EXPECT_THAT(part(6, 0), Contains(HasSubstr("the export of step 3 was cut short")));
  EXPECT_FALSE(fs::exists(scratch_ / "run/checkpoint-3"));
  EXPECT_TRUE(fs::exists(scratch_ / "run/checkpoint-6"));
}

TEST_F(FaultResume, AnExportOfStepsThatWereLeftIsNoneOfTheRun) {
  options_.export_steps = 3;
  part(1, 7);
  fs::copy(scratch_ / "run/checkpoint-6", scratch_ / "left", fs::copy_options::recursive);
  options_.resume_from_checkpoint = (scratch_ / "run/checkpoint-3").string();
  part(4, 6);
  fs::remove_all(scratch_ / "run/checkpoint-6");  // as if a kill had come before it was replaced
  fs::rename(scratch_ / "left", scratch_ / "run/checkpoint-6");
  const std::string left = read_run_state(scratch_ / "run/checkpoint-6").branch;
  options_.resume_from_checkpoint = "auto";
  part(7, 0);
  EXPECT_NE(read_run_state(scratch_ / "run/checkpoint-6").branch, left);
}

TEST_F(FaultResume, ExportsThatAreNotNeededAreNotRead) {
  options_.export_steps = 2;
  part(1, 5);
  flip(scratch_ / "run/checkpoint-2/model.safetensors", 5000);
  EXPECT_THAT(part(6, 0), testing::Not(Contains(HasSubstr("passed over"))));
}

TEST_F(FaultResume, FewerRetainedCommitsGoOn) {
  options_.page_size_bytes = 262144;
  options_.save_total_limit = 4;
  part(1, 6);
  options_.save_total_limit = 1;
  part(7, 0);
}

TEST_F(FaultResume, VeryManyDataFilesFitIntoACommit) {
  std::string name = "tokens.npy";
  for (int i = 0; i < 60; ++i) name.insert(0, "./");
  options_.data.clear();
  for (int i = 0; i < 1500; ++i) options_.data.push_back((scratch_ / name).string());
  options_.max_steps = 3;
  RecordingObserver observer;
  run_train(options_, observer);
  EXPECT_EQ(observer.steps.size(), 3U);
}

TEST_F(FaultResume, RunsKilledBeforeTheirFirstCommitLeaveNoMoreThanOneStore) {
  options_.save_steps = 5;
  for (int run = 0; run < 3; ++run) {
    part(1, 2, true);
    EXPECT_EQ(slot_files(scratch_ / "run").size(), 1U);
  }
  part(1, 0);
  EXPECT_TRUE(slot_files(scratch_ / "run").empty());
}

TEST_F(FaultResume, AStoreThatWasBeingMadeOrRemovedIsForgotten) {
  options_.save_steps = 5;
  part(1, 2, true);
  std::vector<StoreRecord> records = read_store_records(options_.output_dir);
  records.front().whole = false;
  write_store_records(options_.output_dir, records);
  part(1, 0);
  EXPECT_TRUE(slot_files(scratch_ / "run").empty());
}

}  // namespace
}  // namespace spillway
