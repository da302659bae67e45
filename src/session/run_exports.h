// The exports of a training run: which steps have one, the one that waits for its commit, and the one under way.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "checkpoint/committer.h"
#include "executor/executor.h"
#include "session/background_export.h"
#include "session/run_branches.h"
#include "session/setup.h"
#include "telemetry/observer.h"

namespace spillway {

class RunExports {
 public:
  // Both outlive it.
  RunExports(const TrainingSetup& setup, TrainObserver& observer) : setup_(setup), observer_(observer) {}

  // Whether this step is to be exported. The weights are read after it: no update may be pending then.
  bool is_due(std::int64_t step) const;
  // Whether the export of this state, with which the run goes on, is to be there and is not: a kill, or a full disk,
  // may have ended a run before its last export was whole, and one of steps that it has left is another.
  bool is_missing(const RunState& state, const RunBranches& branches) const;

  // Exports that a kill cut short: tells of those that lie before `begin_step`, where the run goes on, and so will not
  // be made again.
  void tell_cut_short(const std::vector<std::int64_t>& steps, std::int64_t begin_step) const;

  // The commit of this state is to be exported once it is durable. None may wait yet.
  void expect(const RunState& state);
  // One waits for its commit, which must not be dropped before the export holds it.
  bool waits() const { return expected_.has_value(); }
  // Begins the one that waits when its commit is durable and none is under way, and tells of one that has ended. Throws
  // what that threw.
  void follow(const std::shared_ptr<SlotStore>& slots, Committer& committer, std::int64_t durable_step);
  bool under_way() const { return export_ != nullptr; }
  // For the one under way, if any; follow tells of it.
  void wait();

  // At once and without a commit, from an executor that is at rest.
  void write(Executor& executor, const RunState& state) const;

 private:
  ExportFrom from() const { return {setup_.model, &setup_.planned.layout, setup_.folder, setup_.files}; }
  std::filesystem::path folder_of(std::int64_t step) const;

  const TrainingSetup& setup_;
  TrainObserver& observer_;
  std::optional<RunState> expected_;
  std::unique_ptr<BackgroundExport> export_;
};

}  // namespace spillway
