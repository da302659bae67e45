// What may happen to the files of a run between its stop and its going on: bits that flip, folders that are copied or
// moved, disks that are missing. It goes on with the bits of an uninterrupted run, or says in a sentence why not; it
// never begins anew in silence, and never removes what is not its own.
#include <gmock/gmock.h>

#include "parts_of_a_run.h"
#include "session/checkpoint_verbs.h"
#include "store/slot_file.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;

class FaultResume : public PartsOfARun {};

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
