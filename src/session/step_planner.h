// The steps of a training run, planned for one choice after another: recorded, laid out, planned, their pages laid, and
// scored in virtual time. What was planned last stands in the setup. Does not know which choice is best.
#pragma once

#include <optional>
#include <vector>

#include "session/lay_pages.h"
#include "session/setup.h"
#include "sim/kept_state.h"

namespace spillway {

class StepPlanner {
 public:
  // Fills in the Programs, kernels and plans of the setup, which outlives it.
  explicit StepPlanner(TrainingSetup& setup) : setup_(setup) {}

  // For steps that go these ways. False when the budget is too small, or when a speculative step would have nothing to
  // update early.
  bool plan(const WorkChoice& choice, const std::vector<UpdateWay>& ways);
  // Only as far as to know what memory it takes, which counts among the smallest budgets; whether it has that. Nothing
  // is planned then.
  bool has_room(const WorkChoice& choice, const std::vector<UpdateWay>& ways);
  // Plans, and says how good it is.
  WorkScore score_of(const WorkChoice& choice, const std::vector<UpdateWay>& ways);
  // Again, of the steps that are recorded, as the setup's choices are now.
  void plan_steps();
  const std::vector<UpdateWay>& ways() const { return ways_; }  // that are planned
  std::int64_t planned_ops() const { return planned_ops_; }     // of all Programs planned so far

  // What a Program takes on the machine as it is recalled.
  const StepRates& rates_of(std::int32_t program) const;
  // Of a training step as it is planned now; `times`: its own, where they are known.
  WorkScore score(std::int32_t step = 0, const std::optional<PlanTimes>& times = {}) const;
  // What is to be least: as in choose_work, what is above max_disk_writes_per_day comes after all under it, by what it
  // writes a step.
  double cost_of(const WorkScore& of) const;

  // Lays the pages of the plans of all Programs but the first.
  void lay_others();
  // Once all is chosen: the plans of steps that commit, and pages laid with more patience.
  void finish();

 private:
  // What the Programs that are planned were recorded for: most choices differ in what is kept in memory alone. None
  // where one speculates: what that one updates early depends on its plan.
  struct Recorded {
    WorkOrder order{};
    Recompute recompute;
    std::int32_t deferred_layers = 0;
    std::vector<UpdateWay> ways;
    bool operator==(const Recorded&) const = default;
  };
  // By the plan of this work that keeps no state in memory; others that differ in what they keep follow in turn.
  struct Weighed {
    WorkChoice unpinned;
    std::vector<UpdateWay> ways;
    double device_updates = 0;
    WeighedState state;
  };
  // The least of those looked at, or of the first that is planned: a step's, and that of one which moves nothing and
  // recomputes nothing unless it must.
  struct Needs {
    std::int64_t min_memory_bytes = 0;
    std::int64_t in_memory_bytes = 0;
    std::int64_t min_device_bytes = 0;
  };

  bool plan_unlaid(const WorkChoice& choice, const std::vector<UpdateWay>& ways);
  bool is_weighed(const WorkChoice& unpinned, const std::vector<UpdateWay>& ways) const;
  bool plan_ways(const std::vector<UpdateWay>& ways);
  void take_shape(const WorkChoice& choice);
  void renew_model(const std::vector<UpdateWay>& ways);
  void record(const std::vector<UpdateWay>& ways, const PieceSet& speculated);
  void plan_recorded(const std::vector<UpdateWay>& ways, const PieceSet& speculated);
  std::vector<const Program*> programs() const;
  std::int64_t asked_page_bytes() const;
  void count_needs(const WorkChoice& choice);
  PieceSet deferred_weights() const;
  void count_planned_ops();
  PlanLinks links() const;
  PlanInTime plan_in_time() const;
  std::optional<PlanTimes> lay_first(int tries);
  void plan_commits();
  void leave_unused_pages();
  const KnownMachine& recalled() const;

  TrainingSetup& setup_;
  mutable std::optional<KnownMachine> recalled_;  // reading it takes time and memory
  mutable std::vector<StepRates> rates_;          // by Program, of those that are planned; none: not looked at
  std::vector<UpdateWay> ways_;
  std::optional<Recorded> recorded_;
  std::optional<Weighed> weighed_;
  Needs needs_;
  std::int32_t deferred_layers_ = 0;  // 0: a deferred step defers all
  std::int64_t planned_ops_ = 0;
};

}  // namespace spillway
