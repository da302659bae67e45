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
#include "session/step_programs.h"
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
// steps commit, further plans of the Programs that may end a step follow, which commit.
struct PlannedPrograms {
  std::vector<const Program*> programs;
  Layout layout;
  Machine machine;
  std::int64_t min_memory_bytes = 0;
  std::int64_t in_memory_bytes = 0;
  std::vector<Plan> plans;  // empty when the budget is too small
  // By Program: its plan that commits, the only one where each run of it does; -1: none.
  std::vector<std::int32_t> committing;

  bool fits() const { return !plans.empty(); }
  // The index of the plan to run a Program by. A Program may commit though that is not asked for, where all runs do.
  std::int32_t plan_of(std::int32_t program, bool commits) const;
  bool commits(std::int32_t plan) const;
  std::int64_t peak_memory_bytes() const;
};

// How plans hang together. By default the first Program settles a boundary for all.
struct PlanLinks {
  std::vector<std::int32_t> boundaries = {};  // by Program: whose boundary it shares; an earlier one, or its own
  std::int32_t speculative = -1;              // the Program that may be taken back
  std::vector<PieceId> speculated = {};       // what then goes back: clean before and after, old versions stand
  std::vector<bool> commits = {};             // by Program: its end is the end of a step, which may be committed
};

PlannedPrograms plan_programs(std::vector<const Program*> programs, const State& state, const RunChoices& choices,
                              KernelCache& kernels, std::int64_t vocab_size, std::int64_t page_bytes,
                              const PlanLinks& links = {});

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
  WorkChosen work;  // how the step is worked through, and what else was tried
  StepPrograms steps;
  std::optional<EvaluationProgram> evaluation;
  KernelCache kernels;
  PlannedPrograms planned;  // the steps' Programs, then evaluation

  std::int32_t evaluation_program() const { return steps.count(); }

  // When steps commit.
  CommitPace pace() const;

 private:
  Model fresh_model() const;
  void plan_work(const WorkChoice& choice);
  std::vector<PieceId> pieces_to_pin(double share) const;
  Timeline timeline() const;
  WorkScore score() const;
  void choose_way();
  bool plan_ways(const std::vector<UpdateWay>& ways);
  void plan_recorded(const std::vector<UpdateWay>& ways, const PieceSet& speculated);
  void plan_steps();
  PlanLinks links() const;
  void plan_commits();

  std::int64_t extra_commit_bytes_ = 0;  // what a commit writes beyond a step that does not commit
};

}  // namespace spillway
