// Checkpoints as people use them: paths however they are written, from whatever directory, on file systems that cannot
// be written, while a run goes on; and what is said when something cannot be done.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "checkpoint/superblock.h"
#include "cli/command_line.h"
#include "formats/atomic_file.h"
#include "golden/model_folder.h"
#include "recording_observer.h"
#include "scratch_folder.h"
#include "session/checkpoint_verbs.h"
#include "session/run_folder.h"
#include "session/run_store.h"
#include "session/session.h"
#include "small_run.h"
#include "stop_after.h"
#include "store/aligned_buffer.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

// The working directory, for a scope.
class Standing {
 public:
  explicit Standing(const fs::path& where) : before_(fs::current_path()) { fs::current_path(where); }
  Standing(const Standing&) = delete;
  Standing& operator=(const Standing&) = delete;
  ~Standing() { fs::current_path(before_); }

 private:
  fs::path before_;
};

template <typename Call>
std::string refusal_of(const Call& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "not refused";
}

// Asks for a stop when the run says this.
class StopAtNote final : public RecordingObserver {
 public:
  StopAtNote(RunControl& control, std::string words) : control_(control), words_(std::move(words)) {}
  void note(std::string_view sentence) override {
    RecordingObserver::note(sentence);
    if (sentence.find(words_) != sentence.npos) control_.stop = 15;
  }

 private:
  RunControl& control_;
  std::string words_;
};

// Calls something in the midst of a run, after its second step.
class InTheMidst final : public RecordingObserver {
 public:
  explicit InTheMidst(std::function<void()> call) : call_(std::move(call)) {}
  void step(const StepRecord& record) override {
    RecordingObserver::step(record);
    if (record.step == 2) call_();
  }

 private:
  std::function<void()> call_;
};

constexpr fs::perms open_to_all =
    fs::perms::group_read | fs::perms::group_exec | fs::perms::others_read | fs::perms::others_exec;

// As a user who may read what the tests wrote and change nothing, for a scope.
class Reader {
 public:
  explicit Reader(const fs::path& folder) : folder_(folder) {
    allow(fs::perms::owner_write | fs::perms::group_write | fs::perms::others_write, fs::perm_options::remove);
    allow(open_to_all, fs::perm_options::add);
    if (::geteuid() == 0 && ::seteuid(nobody) != 0) throw std::runtime_error("seteuid");
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() {
    if (::geteuid() == nobody && ::getuid() == 0) static_cast<void>(::seteuid(0));
    allow(fs::perms::owner_write, fs::perm_options::add);
  }

 private:
  static constexpr uid_t nobody = 65534;
  void allow(fs::perms perms, fs::perm_options how) const {
    fs::permissions(folder_, perms, how);
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) fs::permissions(entry.path(), perms, how);
  }
  fs::path folder_;
};

class CheckpointUse : public testing::Test {
 protected:
  void SetUp() override {
    options_ = small_run(scratch_);
    options_.output_dir = (scratch_ / "run").string();
    options_.max_steps = 6;
    options_.per_device_train_batch_size = 2;
    options_.save_steps = 1;
  }

  // Runs until this step, 0: to the end.
  struct Told {
    std::vector<std::string> notes;
    std::int64_t first_step = 0;
  };
  Told run(std::int64_t stop) const {
    RunControl control;
    StopAfter observer(control, stop);
    run_train(options_, observer, &control);
    return {observer.notes, observer.steps.empty() ? 0 : observer.steps.front().step};
  }

  ScratchFolder scratch_;
  TrainOptions options_;
};

TEST_F(CheckpointUse, AnExportInTheFolderIsThatOfTheRunHoweverItIsWritten) {
  options_.export_steps = 2;
  run(3);
  options_.export_steps = 0;
  options_.resume_from_checkpoint = (scratch_ / "run/checkpoint-2/").string();
  EXPECT_EQ(run(4).first_step, 3);
  const Standing in(scratch_ / "run");
  for (const char* const name : {"checkpoint-2", "checkpoint-2/", "./checkpoint-2/.", "../run//checkpoint-2"}) {
    options_.resume_from_checkpoint = name;
    EXPECT_EQ(run(4).first_step, 3) << name;
  }
  fs::copy(scratch_ / "run/checkpoint-2", scratch_ / "checkpoint-2");
  options_.resume_from_checkpoint = (scratch_ / "checkpoint-2").string();
  EXPECT_THAT(refusal_of([&] { run(4); }), HasSubstr("names another"));
}

TEST_F(CheckpointUse, AnExportMayBeNamedWithASlash) {
  run(3);
  EXPECT_EQ(export_checkpoint(scratch_ / "run", -1, scratch_ / "elsewhere/", false), 3);
  EXPECT_TRUE(fs::exists(scratch_ / "elsewhere/model.safetensors"));
}

TEST_F(CheckpointUse, ACommitIsExportedFromAnyDirectory) {
  fs::create_directory(scratch_ / "other");
  {
    const Standing in(scratch_.path());
    options_.model = "model";
    options_.data = {"tokens.npy"};
    options_.output_dir = "run";
    run(3);
  }
  {
    const Standing in(scratch_ / "other");
    EXPECT_EQ(export_checkpoint("../run", -1, "out", false), 3);
    EXPECT_TRUE(fs::exists(scratch_ / "other/out/model.safetensors"));
  }
  options_.model = (scratch_ / "model").string();
  options_.data = {(scratch_ / "tokens.npy").string()};
  options_.output_dir = (scratch_ / "run").string();
  EXPECT_EQ(run(0).first_step, 4) << "the same files under other names";
}

TEST_F(CheckpointUse, ManyFilesOfDataFitInACommit) {
  golden::write_tokens(scratch_ / "few.npy", 20, 300);
  options_.data.assign(3000, (scratch_ / "few.npy").string());
  run(3);
  EXPECT_EQ(run(0).first_step, 4);
}

TEST_F(CheckpointUse, WeightsAloneAreToldFromACheckpoint) {
  options_.export_steps = 2;
  options_.save_only_model = true;
  run(3);
  options_.output_dir = (scratch_ / "second").string();
  options_.resume_from_checkpoint = (scratch_ / "run/checkpoint-2").string();
  EXPECT_THAT(refusal_of([&] { run(4); }), AllOf(HasSubstr("weights alone"), HasSubstr("as model")));
  options_.resume_from_checkpoint = (scratch_ / "nowhere").string();
  EXPECT_THAT(refusal_of([&] { run(4); }), HasSubstr("is not a folder"));
}

TEST_F(CheckpointUse, AStopSaysWhatTheNextStartDoes) {
  EXPECT_THAT(run(2).notes, Contains(HasSubstr("committed; the same command goes on from there")));
  options_.output_dir = (scratch_ / "none").string();
  options_.resume_from_checkpoint = "none";
  EXPECT_THAT(run(2).notes, Contains(HasSubstr("the same command with resume_from_checkpoint: auto goes on")));
  EXPECT_THAT(refusal_of([&] { run(3); }), HasSubstr("give auto"));

  options_.resume_from_checkpoint = "auto";
  options_.output_dir = (scratch_ / "never").string();
  options_.save_steps = -1;
  EXPECT_THAT(run(2).notes, Contains(AllOf(HasSubstr("nothing is committed"), HasSubstr("name another output_dir"))));
  EXPECT_THAT(refusal_of([&] { run(3); }), HasSubstr("left nothing to resume"));

  options_.output_dir = (scratch_ / "exported").string();
  options_.export_steps = 2;
  EXPECT_THAT(run(3).notes, Contains(HasSubstr("the same command goes on from step 2")));
  EXPECT_EQ(run(0).first_step, 3);

  options_.export_steps = 0;
  options_.output_dir = (scratch_ / "run").string();  // with commits of before
  EXPECT_THAT(run(4).notes, Contains(HasSubstr("the same command goes on from step 2")));
  EXPECT_EQ(run(0).first_step, 3);
}

TEST_F(CheckpointUse, ARunStoppedWhileItLoadsLeavesTheFolderAsItWas) {
  const auto stopped_at = [&](const std::string& words) {
    RunControl control;
    StopAtNote observer(control, words);
    run_train(options_, observer, &control);
    EXPECT_THAT(observer.notes, Contains(HasSubstr(words)));
    EXPECT_THAT(observer.notes, Contains(HasSubstr("nothing is lost")));
    EXPECT_TRUE(observer.steps.empty());
    EXPECT_EQ(observer.end.output_dir, "");
  };
  const std::string in_memory = "products:";  // said before the weights are read
  for (const char* const resume : {"none", "auto"}) {
    options_.resume_from_checkpoint = resume;
    stopped_at(in_memory);
    EXPECT_FALSE(fs::exists(scratch_ / "run/store.json"));
    for (const auto& entry : fs::directory_iterator(scratch_ / "run")) EXPECT_NE(entry.path().extension(), ".slots");
  }
  EXPECT_EQ(run(3).first_step, 1);
  stopped_at("going on after");
  stopped_at(in_memory);
  options_.page_size_bytes = 8192;  // it reads what is there into other slots
  stopped_at(in_memory);
  options_.page_size_bytes = 0;
  EXPECT_TRUE(verify_checkpoints(scratch_ / "run").sound());
  EXPECT_EQ(run(0).first_step, 4);
}

TEST_F(CheckpointUse, AStopBeforeARunBeginsEndsItToo) {
  RunControl control;
  control.stop = 15;
  RecordingObserver observer;
  run_train(options_, observer, &control);
  EXPECT_TRUE(observer.steps.empty());
  EXPECT_THAT(observer.notes, Contains(HasSubstr("stopped while loading")));
}

TEST_F(CheckpointUse, WhileARunGoesOnItIsSaidThatNothingWasChecked) {
  const std::string folder = (scratch_ / "run").string();
  int code = -1;
  std::string out;
  std::string err;
  const auto command = [&](const std::string& action) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    code = run_command_line({"checkpoint", action, folder});
    out = testing::internal::GetCapturedStdout();
    err = testing::internal::GetCapturedStderr();
  };
  InTheMidst observer([&] {
    command("verify");
    EXPECT_EQ(code, 2) << err;
    EXPECT_THAT(err, AllOf(HasSubstr("a run is going on"), HasSubstr("not checked"), Not(HasSubstr("verifies"))));
    command("list");
    EXPECT_EQ(code, 0) << err;
    EXPECT_THAT(err, HasSubstr("a run is going on"));
    EXPECT_EQ(out, "no checkpoints that can be looked at\n");
    EXPECT_THAT(refusal_of([&] { export_checkpoint(folder, -1, scratch_ / "to", false); }),
                HasSubstr("a run is going on"));
  });
  run_train(options_, observer);
  EXPECT_NE(code, -1);
}

TEST_F(CheckpointUse, ReadersShareTheFolderAndARunSaysThatTheyRead) {
  run(3);
  const FolderLock reader(scratch_ / "run", FolderUse::reading);
  EXPECT_TRUE(verify_checkpoints(scratch_ / "run").sound());
  const std::optional<SlotSet> set = find_slot_set(read_store_records(scratch_ / "run").front(), {scratch_ / "run"});
  const auto slots = open_store(*set, SpillAccess::read);
  EXPECT_TRUE(verify_checkpoints(scratch_ / "run").sound());
  EXPECT_THAT(refusal_of([&] { run(4); }), HasSubstr("spillway checkpoint is reading"));
}

TEST_F(CheckpointUse, WhatCannotBeWrittenCanBeReadAndExported) {
  run(3);
  fs::permissions(scratch_.path(), open_to_all, fs::perm_options::add);
  fs::permissions(scratch_ / "model", open_to_all, fs::perm_options::add);
  fs::create_directory(scratch_ / "free");
  fs::permissions(scratch_ / "free", fs::perms::all);
  {
    const Reader reader(scratch_ / "run");
    EXPECT_TRUE(list_checkpoints(scratch_ / "run").sound());
    const CheckpointReport report = verify_checkpoints(scratch_ / "run");
    EXPECT_TRUE(report.sound()) << (report.notes.empty() ? "" : report.notes.front());
    EXPECT_EQ(report.rows.size(), 1U);
    EXPECT_EQ(export_checkpoint(scratch_ / "run", -1, scratch_ / "free/three", false), 3);
  }
  EXPECT_EQ(run(0).first_step, 4);
}

TEST_F(CheckpointUse, PruneLeavesTheOriginalOfACopyAlone) {
  fs::create_directory(scratch_ / "disk");
  options_.spill_dir = {(scratch_ / "disk").string()};
  options_.save_total_limit = 3;
  run(5);
  fs::copy(scratch_ / "run", scratch_ / "copy", fs::copy_options::recursive);
  const std::size_t commits = list_checkpoints(scratch_ / "run").rows.size();
  for (const std::int64_t keep : {1, 0}) {
    const CheckpointReport pruned = prune_checkpoints(scratch_ / "copy", keep);
    EXPECT_THAT(pruned.told, Contains(HasSubstr("belong to " + (scratch_ / "run").string())));
    EXPECT_TRUE(pruned.rows.empty());
    EXPECT_TRUE(verify_checkpoints(scratch_ / "run").sound());
    EXPECT_EQ(list_checkpoints(scratch_ / "run").rows.size(), commits);
  }
  EXPECT_FALSE(fs::exists(scratch_ / "copy/store.json"));
  EXPECT_EQ(prune_checkpoints(scratch_ / "run", 1).rows.size(), commits - 1);
  EXPECT_EQ(run(0).first_step, 6);
}

TEST_F(CheckpointUse, WhatTheRunHasLeftIsShownAndGoesFirst) {
  options_.save_steps = -1;
  options_.export_steps = 2;
  run(5);
  options_.resume_from_checkpoint = (scratch_ / "run/checkpoint-2").string();
  options_.export_steps = 0;
  run(3);
  const auto left = [&] {
    std::map<std::int64_t, bool> steps;
    for (const CheckpointRow& row : list_checkpoints(scratch_ / "run").rows) steps[row.step] = row.left;
    return steps;
  };
  EXPECT_EQ(left(), (std::map<std::int64_t, bool>{{2, false}, {4, true}}));
  testing::internal::CaptureStdout();
  run_command_line({"checkpoint", "list", (scratch_ / "run").string()});
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("readable, left"));
  EXPECT_EQ(prune_checkpoints(scratch_ / "run", 1).rows.front().step, 4);
  EXPECT_EQ(left(), (std::map<std::int64_t, bool>{{2, false}}));
  options_.resume_from_checkpoint = "auto";
  EXPECT_EQ(run(0).first_step, 3);
}

TEST_F(CheckpointUse, AFinishedRunIsNamedAsSuch) {
  run(0);
  const std::string folder = (scratch_ / "run").string();
  EXPECT_THAT(refusal_of([&] { list_checkpoints(folder); }), HasSubstr("is finished"));
  options_.resume_from_checkpoint = folder;
  options_.output_dir = (scratch_ / "next").string();
  EXPECT_THAT(refusal_of([&] { run(0); }), AllOf(HasSubstr("leaves at its end"), HasSubstr("as model to begin")));
}

TEST_F(CheckpointUse, PruneRemovesNoFileBeforeTheRecordSaysSo) {
  run(3);
  const fs::path in_the_way = temporary_name(scratch_ / "run" / store_record_name);
  fs::create_directory(in_the_way);
  EXPECT_THROW(prune_checkpoints(scratch_ / "run", 0), Error);
  fs::remove(in_the_way);
  EXPECT_EQ(run(4).first_step, 4);
  EXPECT_EQ(prune_checkpoints(scratch_ / "run", 0).rows.size(), 1U);
  EXPECT_FALSE(fs::exists(scratch_ / "run" / store_record_name));
}

TEST_F(CheckpointUse, AnExportThatCannotBeRemovedIsNamed) {
  options_.save_steps = -1;
  options_.export_steps = 2;
  run(5);
  fs::permissions(scratch_.path(), open_to_all, fs::perm_options::add);
  const Reader reader(scratch_ / "run");
  EXPECT_THAT(refusal_of([&] { prune_checkpoints(scratch_ / "run", 0); }),
              AllOf(HasSubstr("checkpoint-4"), HasSubstr("cannot be removed")));
}

// Its checksum is right, so that nothing but its numbers speaks against it.
TEST_F(CheckpointUse, ASuperblockThatNamesTooLongAManifestIsPassedOver) {
  run(3);
  const std::optional<SlotSet> set =
      find_slot_set(read_store_records(scratch_ / "run").front(), {scratch_ / "run", scratch_.path()});
  ASSERT_TRUE(set);
  {
    const auto slots = open_store(*set);
    const AlignedBuffer block(slot_file_block_bytes);
    for (int place = 0; place < superblock_places; ++place) {
      slots->read_block(0, superblock_offset_bytes(place), block.span());
      std::optional<Superblock> superblock = read_superblock(block.span(), slots->run(), 0, 1);
      if (!superblock) continue;
      for (CommitEntry& entry : superblock->commits) entry.manifest_bytes = std::int64_t{1} << 61;
      write_superblock(*superblock, slots->run(), 0, 1, block.span());
      slots->write_block(0, superblock_offset_bytes(place), block.span());
    }
  }
  const CheckpointReport report = list_checkpoints(scratch_ / "run");
  EXPECT_FALSE(report.sound());
  EXPECT_THAT(report.notes, Contains(HasSubstr("more than the files hold")));
}

}  // namespace
}  // namespace spillway
