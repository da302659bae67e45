// Everything a training run decides before it touches a weight: configuration, Programs, kernels, Machine and Plans.
// What `spillway plan` prints and `spillway train` runs are the same object.
#pragma once

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
#include "session/model_files.h"
#include "session/options.h"
#include "session/planned_programs.h"
#include "session/run_choices.h"
#include "session/step_programs.h"
#include "sim/simulate.h"

namespace spillway {

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
  PlannedPrograms planned;              // the steps' Programs, then evaluation
  bool commits_are_waited_for = false;  // they write little, but a step that commits takes longer for it

  std::int32_t evaluation_program() const { return steps.count(); }

  // As nothing was recorded for: a model that keeps no gradients, and kernels of the device that ops run on.
  Model fresh_model() const;
  KernelCache fresh_kernels() const;

  // There was something to choose, and how fast the disk is was only guessed.
  bool guessed_the_disk() const;

  // What a budget that is too small may be answered with, after "give that much".
  std::string_view advice() const;

  // One of the plans in virtual time: a step between others as this run has them, an update that completes one from
  // rest to rest.
  Timeline simulated(const Plan& plan, const StepRates& rates) const;

  // When steps commit.
  CommitPace pace() const;
  // What commits write beyond the steps' own writes, at the pace they have where a step takes so long.
  double commit_bytes_per_second(double step_seconds, const DiskRate& disk, std::int32_t step = 0) const;

 private:
  void choose_steps(const WorkChoice* near);
  void note_missing_memory();
};

}  // namespace spillway
