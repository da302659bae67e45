// A run that goes back to an older checkpoint, whose path it is given, and leaves what it saved after it: it goes on
// from none of that by itself while there is anything else, and loses nothing that it goes on from.
#include <gmock/gmock.h>

#include "parts_of_a_run.h"
#include "session/checkpoint_verbs.h"
#include "session/portable.h"
#include "session/run_branches.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;

class FaultBranches : public PartsOfARun {
 protected:
  // After newer commits; without saving anything.
  void go_back_to(std::int64_t step) {
    options_.resume_from_checkpoint = (scratch_ / fmt::format("run/checkpoint-{}", step)).string();
    options_.save_steps = 100;
    options_.export_steps = 0;
    part(step + 1, step + 2, true);
    options_.resume_from_checkpoint = "auto";
  }

  // To step 4, of which a commit is retained beside one of step 5, which is left.
  void go_back_and_lose_the_export() {
    options_.page_size_bytes = 262144;
    options_.export_steps = 4;
    options_.save_total_limit = 3;
    part(1, 5);
    go_back_to(4);
    fs::remove_all(scratch_ / "run/checkpoint-4");
  }
};

// Also where the run has come as far again, and without commits, which would say where it stands.
TEST_F(FaultBranches, AnExportThatTheRunHasLeftIsPassedOver) {
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

TEST_F(FaultBranches, ACommitThatTheRunHasLeftServesWhereNothingElseDoes) {
  options_.export_steps = 3;
  part(1, 7);
  go_back_to(3);
  EXPECT_THAT(part(4, 6, true), Contains(testing::AllOf(HasSubstr("commit of step 7"), HasSubstr("has left it"))));
  fs::remove_all(scratch_ / "run/checkpoint-3");
  EXPECT_THAT(part(8, 0), Contains(HasSubstr("that it had left")));
}

TEST_F(FaultBranches, AnOlderCommitThatIsTheRunsOwnGoesBeforeANewerOneThatItHasLeft) {
  go_back_and_lose_the_export();
  options_.save_steps = 1;
  part(5, 7);
  part(8, 0);
}

TEST_F(FaultBranches, PruningKeepsWhatTheRunGoesOnFrom) {
  go_back_and_lose_the_export();
  prune_checkpoints(scratch_ / "run", 1);
  const CheckpointReport kept = list_checkpoints(scratch_ / "run");
  ASSERT_EQ(kept.rows.size(), 1U);
  EXPECT_EQ(kept.rows.front().step, 4);
  EXPECT_FALSE(kept.rows.front().left);
  part(5, 0);
}

TEST_F(FaultBranches, PruningRemovesNothingForAnExportThatDoesNotServe) {
  options_.export_steps = 4;
  part(1, 5);
  go_back_to(4);
  scratch_.file("run/checkpoint-4/spillway_state.json", "{");
  prune_checkpoints(scratch_ / "run", 1);
  options_.save_steps = 1;
  EXPECT_THAT(part(6, 0), Contains(HasSubstr("that it had left")));
}

TEST_F(FaultBranches, PruningCountsExportsOfWeightsAloneByThemselves) {
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

TEST_F(FaultBranches, WhatLedToABranchThatWasLeftAndTakenUpAgainIsItsOwn) {
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

TEST_F(FaultBranches, AnExportFromWhichTheRunWentOnIsNotMadeAgain) {
  options_.export_steps = 4;
  part(1, 4);
  go_back_to(4);
  options_.export_steps = 4;
  EXPECT_THAT(part(5, 0), testing::Not(Contains(HasSubstr("is not there"))));
}

TEST_F(FaultBranches, ARunThatWentOnFromAnotherAndSavedNothingIsNotBegunAnew) {
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

TEST_F(FaultBranches, ARunThatWasKilledWhileItLoadedACheckpointIsNotBegunAnew) {
  options_.export_steps = 4;
  part(1, 5);
  options_.output_dir = (scratch_ / "second").string();
  options_.resume_from_checkpoint = (scratch_ / "run/checkpoint-4").string();
  KilledWhileLoading observer;
  EXPECT_THROW(run_train(options_, observer), Killed);
  options_.resume_from_checkpoint = "auto";
  EXPECT_THAT(refusal(), HasSubstr("left nothing to go on from"));
}

TEST_F(FaultBranches, WhatAnEmptiedFolderSaysOfBranchesIsForgotten) {
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

TEST_F(FaultBranches, ABranchesFileOfSomethingElseIsInTheWay) {
  fs::create_directory(scratch_ / "run");
  scratch_.file("run/branches.json", "{\"mine\": 1}");
  EXPECT_THAT(refusal(), HasSubstr("already holds branches.json"));
  EXPECT_EQ(scratch_.text_of("run/branches.json"), "{\"mine\": 1}");
}

TEST_F(FaultBranches, WithoutTheFileOfItsBranchesARunGoesOnFromTheNewest) {
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

TEST_F(FaultBranches, AnOlderCheckpointThatWasGivenBeginsABranch) {
  options_.export_steps = 3;
  part(1, 7);
  options_.resume_from_checkpoint = (scratch_ / "run/checkpoint-3").string();
  part(4, 4);
  options_.resume_from_checkpoint = "auto";
  part(5, 0);  // not from checkpoint-6
}

TEST_F(FaultBranches, ABranchGoesOnBesideLaterCommitsOfTheOneItLeft) {
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

TEST_F(FaultBranches, AnExportOfStepsThatWereLeftIsNoneOfTheRun) {
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

}  // namespace
}  // namespace spillway
