// Everything a training run decides before it touches a weight: configuration, Programs, kernels, Machine and Plans.
// What `spillway plan` prints and `spillway train` runs are the same object.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/kernel_table.h"
#include "formats/hf_config.h"
#include "formats/safetensors.h"
#include "machine/machine.h"
#include "model/programs.h"
#include "plan/plan.h"
#include "session/choice.h"
#include "session/commit_pace.h"
#include "session/model_files.h"
#include "session/options.h"
#include "sim/simulate.h"
#include "telemetry/event_recorder.h"

namespace spillway {

inline constexpr std::int64_t most_micro_batches = 4096;  // of a step

// How a verb runs: the choices that `auto` and 0 stand for.
// How steps commit: not at all, some by a plan of their own, or all.
enum class Commits : std::uint8_t { none, some, all };

struct RunChoices {
  DType dtype = DType::f32;
  int threads = 1;
  std::int64_t budget_bytes = 0;
  std::vector<std::filesystem::path> spill_dirs;
  std::int64_t ring_steps = 0;  // steps whose events the rings hold; 0: nothing is recorded
  Policy policy = Policy::automatic;
  std::vector<PieceId> pinned = {};  // their bundles, see PlanRequest
  Commits commits = Commits::none;
  std::int64_t reserved_bytes = 0;  // of the budget, for what goes on beside the Programs
};

// `notes` gains a sentence for each choice a user should know of.
RunChoices choose(const std::string& dtype, std::int64_t threads, std::int64_t memory_bytes,
                  const std::vector<std::string>& spill_dir, const std::filesystem::path& default_spill_dir,
                  std::vector<std::string>& notes);

// What of the budget is not pages, for these Programs: a function of them alone, so that `plan` and the run agree.
std::int64_t fixed_bytes_for(std::span<const Program* const> programs, const State& state, const KernelCache& kernels,
                             int threads, std::int64_t vocab_size);

// The rings for these Programs' events.
RingCapacities rings_for(std::span<const Program* const> programs, const RunChoices& choices);

// Programs over one State, laid out and planned for one budget. Plans are in the order of the Programs; where only some
// steps commit, one of the first Program that does follows them. The first one settles the boundary that all share.
struct PlannedPrograms {
  std::vector<const Program*> programs;
  Layout layout;
  Machine machine;
  std::int64_t min_memory_bytes = 0;
  std::int64_t in_memory_bytes = 0;
  std::vector<Plan> plans;       // empty when the budget is too small
  std::int32_t committing = -1;  // the plan that commits; the first one when every step does; -1: none

  bool fits() const { return !plans.empty(); }
  std::int64_t peak_memory_bytes() const;
};

PlannedPrograms plan_programs(std::vector<const Program*> programs, const State& state, const RunChoices& choices,
                              KernelCache& kernels, std::int64_t vocab_size, std::int64_t page_bytes);

// What a step writes to disk, by what outlives it and what does not: activations and gradients.
struct DiskWrites {
  std::int64_t state_bytes = 0;
  std::int64_t local_bytes = 0;
};
DiskWrites disk_writes(const Plan& plan, const Layout& layout);

// Why it does not fit, and what to do: the smallest budget, then `advice` (", or make … smaller").
std::string refusal(const PlannedPrograms& planned, std::string_view advice);
inline constexpr std::string_view training_advice = ", or make per_device_train_batch_size or max_seq_len smaller";

void require_fit(const PlannedPrograms& planned, std::string_view advice);  // throws DoesNotFit with the refusal

// Before the pages are taken: gives freed memory back and checks that what is resident leaves room for them.
void check_fixed_memory(const PlannedPrograms& planned);

// Unsets variables that would change numbers behind our back (DNNL_*, ONEDNN_*), naming them in `notes`.
void clear_numeric_environment(std::vector<std::string>& notes);

class TrainingSetup {
 public:
  // Reads the model folder's config and headers, not its weights. Throws UserError.
  explicit TrainingSetup(const TrainOptions& given);

  const TrainOptions options;
  std::vector<std::string> notes;
  HfConfig config;
  ModelFolder folder;
  ModelFiles files;
  RunChoices choices;
  StepShape shape;
  std::int64_t sequence_length = 0;
  Model model;
  TrainingProgram training;
  WorkChosen work;  // how the step is worked through, and what else was tried
  std::optional<EvaluationProgram> evaluation;
  KernelCache kernels;
  PlannedPrograms planned;

  // When steps commit.
  CommitPace pace() const;

 private:
  std::vector<const Program*> programs() const;
  void plan_step(const WorkChoice& choice);
  std::vector<PieceId> pieces_to_pin(double share) const;
  Timeline timeline() const;
  void plan_commits();
  WorkScore score() const;

  std::int64_t extra_commit_bytes_ = 0;  // what a commit writes beyond a step that does not commit
};

}  // namespace spillway
