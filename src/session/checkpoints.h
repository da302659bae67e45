// What a training run saves and how it goes on: the output folder, the search for something to resume, commits in the
// background, exports.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/steady_clock.h"
#include "checkpoint/committer.h"
#include "plan/commit_slots.h"
#include "session/commit_pace.h"
#include "session/known_stores.h"
#include "session/portable.h"
#include "session/run_branches.h"
#include "session/run_exports.h"
#include "session/run_folder.h"
#include "session/setup.h"
#include "telemetry/run_watch.h"

namespace spillway {

class RunCheckpoints {
 public:
  // Both outlive this.
  RunCheckpoints(const TrainingSetup& setup, RunWatch& watch)
      : setup_(setup),
        watch_(watch),
        observer_(watch.observer()),
        stores_(setup.options.output_dir, setup.choices.spill_dirs,
                [this](const std::string& sentence) { observer_.note(sentence); }),
        exports_(setup, observer_) {}

  // Takes the output folder, and what commits an earlier run left. Throws UserError, also when another process has it.
  void claim();
  // After claim: the folder holds the model of a run that finished. The caller reads the data and calls tell_finished;
  // nothing else may follow.
  bool holds_finished_run() const { return finished_.has_value(); }
  // Tells the observer that `now`, with so many steps, is finished, and removes commits that a process left which was
  // killed after it had written the model. Throws UserError when the finished run is another.
  void tell_finished(const RunState& now, std::int64_t total_steps);
  // Looks for what to go on from, given what the run is. Tells the observer what was passed over, and why, and what has
  // changed. Throws UserError when the run may not go on from it, or has made more than `total_steps`.
  void find(const RunState& now, std::int64_t total_steps);
  // Where the run begins: at 0, or where it was stopped. After find.
  const RunState& begin() const { return begin_; }
  // Before the first record: makes durable which steps the run has left. Throws DeviceError.
  void write_branches() const;

  // The slots of the run, for the executor, in these shares over the spill directories (empty: even); null when nothing
  // is kept. Throws DeviceError when the disk has no room.
  std::shared_ptr<SlotStore> prepare_slots(const std::vector<double>& shares);
  // Before anything is in the executor's memory: takes over the slots of the commit, where they serve as they are.
  void adopt(Executor& executor);
  // Otherwise fills the executor's state from what was found; false when there is nothing, and the caller loads a
  // model. Calls `between` now and then; what that throws ends it.
  bool restore(Executor& executor, const std::function<void()>& between = {});
  // Before start, with the executor gone: the run is not to be. Removes the slots that were made for it.
  void abandon();
  // Before the first step. Makes the export of where the run begins, if it should be there and is not.
  void start(Executor& executor);

  // Before a step, of which `after` is to be the end: whether it is to commit, because that is due or `commit_wanted`.
  // `is_dear`: to commit, this step must complete an update first, so that such commits are spaced out.
  bool begin_step(const RunState& after, bool commit_wanted, bool is_dear);
  // A run whose plan commits follows, or is accepted next; `wanted`: it is that of the step begun. Without this, plans
  // that commit are not run.
  void expect_commit(bool wanted);
  // For ExecutorOptions::on_commit: the versions of the oldest run whose commit was not reached yet. On the disk
  // thread, or on that of the caller while it accepts a run.
  void reached(SlotSnapshot snapshot);
  const RunExports& exports() const { return exports_; }
  // The step has proved good and is recorded: its commit may become durable once it is reached. Exports what is due,
  // and tells what became durable.
  void after_step(const RunState& state);
  // Ends the exports that are under way or due; the executor is drained. Before the model is written, which says that
  // the run is finished.
  void finish_exports();
  // The run stops here: commits, and waits until everything is durable. Returns a sentence for the user.
  std::string stop(const RunState& state);
  // After finish_exports, with the model written: drops the commits and the executor's slots, which it must not use any
  // more.
  void finish();

 private:
  void take_export(std::unique_ptr<PortableSource> source, const std::filesystem::path& folder, const RunState& now);
  bool take_newest_export(const RunState& now, std::int64_t step);
  void require_nothing_to_lose() const;
  void go_on_from(const RunState& then, const std::string& name, const RunState& now);
  bool adopts() const;
  void make_store(const CommitSlots& needed, const std::vector<double>& shares);
  bool is_due(const RunState& after, bool is_dear);
  int pending() const;
  void commit_now(const RunState& state);
  void note_stage(EventSource source, std::int64_t step, CommitStage stage, std::int64_t bytes);
  void start_commits();
  void make_missing_export();
  void follow_commits();
  std::string next_command() const;
  std::string stop_without_commits(std::int64_t step) const;
  std::filesystem::path output_dir() const { return setup_.options.output_dir; }
  double now_seconds() const { return seconds_since(started_); }

  const TrainingSetup& setup_;
  RunWatch& watch_;
  TrainObserver& observer_;
  const SteadyClock::time_point started_ = SteadyClock::now();
  FolderLock lock_;
  std::optional<RunState> finished_;
  bool is_new_ = false;                    // the folder holds no run yet
  std::vector<std::int64_t> cut_short_;    // steps of exports
  std::unique_ptr<DiskCalls> slow_calls_;  // of flush_delay_ms; outlives the stores

  KnownStores stores_;
  std::optional<FoundCommit> found_;
  std::unique_ptr<PortableSource> found_export_;
  std::optional<SlotSnapshot> adopted_;  // the slots of found_, when the run goes on in them
  RunState begin_;
  std::int64_t total_steps_ = 0;
  RunBranches branches_;

  Executor* executor_ = nullptr;
  std::shared_ptr<SlotStore> slots_;  // of this run
  OpenedCatalogue catalogue_;         // of slots_, when it was adopted
  std::optional<CommitPace> pace_;
  std::thread::id training_thread_;
  std::atomic<std::int64_t> durable_step_{-1};
  std::atomic<double> commit_seconds_{0};
  bool commit_wanted_ = false;  // and not begun yet
  std::int64_t told_postponed_ = 0;
  std::unique_ptr<Committer> committer_;
  RunExports exports_;

  std::optional<CommitFacts> next_;  // of the step begun, when it is to commit
  // A run by a plan that commits, until its commit is reached and its step has proved good.
  struct Expected {
    std::optional<CommitFacts> facts;  // nothing: its commit is not wanted
    bool good = false;
    std::optional<SlotSnapshot> snapshot = {};  // once it is reached
  };
  void submit_ready();  // under the mutex
  mutable std::mutex expected_mutex_;
  std::deque<Expected> expected_;  // the oldest first
};

}  // namespace spillway
