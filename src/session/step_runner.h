// Runs training steps: each in the way that the policy asks for, with the updates that complete it.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "executor/executor.h"
#include "session/clip_policy.h"
#include "session/feed.h"
#include "session/pending_update.h"
#include "session/setup.h"

namespace spillway {

class StepRunner {
 public:
  // Hears of each commit before it can be reached, or of none when its run is taken back; `wanted`: it is that of a
  // step that is to commit, and otherwise one that the plan makes all the same.
  using ExpectCommit = std::function<void(bool wanted)>;

  // All must outlive this; `windows` null: no step is run. Writes the inputs that do not change.
  StepRunner(const TrainingSetup& setup, Executor& executor, const Windows* windows, ExpectCommit expect_commit);

  struct Step {
    std::int64_t number = 0;  // from 1
    std::int64_t first_sequence = 0;
    double learning_rate = 0;
    AdamwScalars scalars = {};
    bool commits = false;  // a deferred step then completes its update
  };
  struct Outcome {
    double loss = 0;  // mean over the targets
    double norm = 0;  // before clipping
    std::int64_t targets = 0;
    UpdateWay way = UpdateWay::during;
    std::int32_t plan = 0;            // of the step
    std::vector<std::int32_t> plans;  // all that ran for it, those that complete an update among them
    bool clipped = false;
    bool taken_back = false;  // speculated in vain
    RunReport report;
  };
  // Throws DeviceError. A loss or norm that is not finite is returned with the update not made where the way allows.
  Outcome run(const Step& step);

  UpdateWay next_way() const { return policy_.way(); }

  // Makes the update that is pending, if any. Weights are read, saved and evaluated only after that.
  void flush();
  const std::optional<PendingUpdate>& pending() const { return pending_; }

  std::int64_t sequences() const { return shape_.sequences * shape_.micro_batches; }  // of a step

 private:
  RunReport run_plan(std::int32_t number);
  void expect_commit_of(std::int32_t plan, bool wanted);
  RunReport update(std::int32_t program, const UpdateProgram& update, const PendingUpdate& pending, bool commits);
  void settle_speculation(Outcome& outcome, const Step& step, float factor);
  void leave_update(Outcome& outcome, const Step& step, float factor);
  RunReport complete(bool commits);

  const StepPrograms& programs_;
  const PlannedPrograms& planned_;
  StepShape shape_;
  Executor& executor_;
  ClipPolicy policy_;
  ExpectCommit expect_commit_;
  std::deque<BatchFeed> feeds_;  // by step Program
  std::vector<BundleId> speculated_;
  std::optional<PendingUpdate> pending_;
  std::vector<std::int32_t> ran_;  // plans, since the step began
};

// The policy for the ways that were planned.
ClipPolicy policy_of(const TrainingSetup& setup);

double read_double(const Executor& executor, std::int32_t program, const Operand& operand);

}  // namespace spillway
