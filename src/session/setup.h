// Everything a training run decides before it touches a weight: configuration, Programs, kernels, Machine and Plans.
// What `spillway plan` prints and `spillway train` runs are the same object.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/hf_config.h"
#include "formats/safetensors.h"
#include "model/programs.h"
#include "session/choice.h"
#include "session/clip_policy.h"
#include "session/commit_pace.h"
#include "session/known_machine.h"
#include "session/lay_pages.h"
#include "session/model_files.h"
#include "session/options.h"
#include "session/planned_programs.h"
#include "session/run_choices.h"
#include "session/step_programs.h"
#include "sim/kept_state.h"
#include "sim/simulate.h"

namespace spillway {

inline constexpr std::int64_t most_micro_batches = 4096;  // of a step

class TrainingSetup {
 public:
  // Reads the model folder's config and headers, not its weights. Throws UserError.
  // With `near`, which was chosen for options that differ little, less is tried beside it: for an estimate.
  explicit TrainingSetup(const TrainOptions& given, const WorkChoice* near = nullptr);

  const TrainOptions options;
  std::vector<std::string> notes;
  HfConfig config;
  ModelFolder folder;
  ModelFiles files;
  RunChoices choices;
  StepShape shape;
  std::int64_t sequence_length = 0;
  Model model;
  WorkChosen work;  // how the step is worked through, and what else was tried
  StepPrograms steps;
  ClipCosts clip_costs;  // where steps go both ways
  std::optional<EvaluationProgram> evaluation;
  KernelCache kernels;
  PlannedPrograms planned;  // the steps' Programs, then evaluation

  std::int32_t evaluation_program() const { return steps.count(); }

  // There was something to choose, and how fast the disk is was only guessed.
  bool guessed_the_disk() const;

  // One of the plans in virtual time, between others as this run has them.
  Timeline simulated(const Plan& plan, const StepRates& rates) const;

  // When steps commit.
  CommitPace pace() const;
  // What commits write beyond the steps' own writes, at the pace they have where a step takes so long.
  double commit_bytes_per_second(double step_seconds, const DiskRate& disk, std::int32_t step = 0) const;

 private:
  Model fresh_model() const;
  KernelCache fresh_kernels() const;
  void take_device();
  void open_cuda();
  void measure_ops_on_device();
  void choose_direct();
  WorkLimits work_limits() const;
  WorkScore score_of(const WorkChoice& choice, const std::vector<UpdateWay>& ways);
  bool plan_work(const WorkChoice& choice, const std::vector<UpdateWay>& ways);
  bool plan_unlaid(const WorkChoice& choice, const std::vector<UpdateWay>& ways);
  std::vector<UpdateWay> first_ways(const WorkChoice& choice) const;
  bool is_weighed(const WorkChoice& unpinned, const std::vector<UpdateWay>& ways) const;
  const KnownMachine& recalled() const;
  WorkScore score(std::int32_t step = 0, const std::optional<PlanTimes>& times = {}) const;
  void choose_way();
  std::optional<WorkChosen> plan_best_of(const std::vector<UpdateWay>& ways);
  void take_work(const WorkChosen& chosen);
  std::string note_on_work() const;
  bool may_write_as(const std::vector<UpdateWay>& ways) const;
  ClipCosts simulated_clip_costs() const;
  bool plan_ways(const std::vector<UpdateWay>& ways);
  void plan_recorded(const std::vector<UpdateWay>& ways, const PieceSet& speculated);
  PieceSet deferred_weights() const;
  void plan_steps();
  void count_planned_ops();
  PlanLinks links() const;
  void plan_commits();
  void leave_unused_pages();
  std::optional<PlanTimes> lay_first(int tries);
  void lay_others();
  PlanInTime plan_in_time() const;
  const StepRates& rates_of(std::int32_t program) const;
  double host_update_rate() const;
  double update_memory_bytes() const;  // of a parameter, read and written by its update
  double estimated_device_updates() const;
  void choose_steps(const std::optional<WorkChoice>& before = {});
  std::optional<WorkChoice> first_on_device() const;
  WorkChoice recomputing_nothing(WorkChoice choice) const;
  double seconds_saved_by_host() const;
  bool choose_all_on_device();
  void choose_updates();
  void try_device_share(double share);
  void choose_share();
  double cost_of(const WorkScore& of) const;
  void say_where_updates_run();

  mutable std::optional<KnownMachine> recalled_;  // while steps are chosen: reading it takes time and memory
  mutable std::vector<StepRates> rates_;          // by Program, of those that are planned; none: not looked at
  std::vector<UpdateWay> ways_;                   // that are planned
  // What the Programs that are planned were recorded for, while the steps are chosen: most choices differ in what is
  // kept in memory alone. None where one speculates: what that one updates early depends on its plan.
  struct Recorded {
    WorkOrder order{};
    Recompute recompute;
    std::int32_t deferred_layers = 0;
    std::vector<UpdateWay> ways;
    bool operator==(const Recorded&) const = default;
  };
  std::optional<Recorded> recorded_;
  std::int32_t deferred_layers_ = 0;           // 0: a deferred step defers all
  bool commits_are_waited_for_ = false;        // they write little, but a step that commits takes longer for it
  std::int64_t most_ops_ = most_ops_for_work;  // to be planned while the steps are chosen
  std::int64_t planned_ops_ = 0;               // of all Programs planned for them so far
  // By the plan of this work that keeps no state in memory; others that differ in what they keep follow in turn.
  struct Weighed {
    WorkChoice unpinned;
    std::vector<UpdateWay> ways;
    double device_updates = 0;
    WeighedState state;
  };
  std::optional<Weighed> weighed_;
  // What needs least, and what moves nothing and recomputes nothing: of the first that is planned.
  struct Needs {
    std::int64_t min_memory_bytes = 0;
    std::int64_t in_memory_bytes = 0;
    std::int64_t min_device_bytes = 0;
  } needs_;
};

}  // namespace spillway
