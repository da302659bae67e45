#include "session/setup.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"
#include "device/memory_info.h"
#include "formats/machine_file.h"
#include "session/known_machine.h"
#include "session/step_chooser.h"
#include "session/step_planner.h"
#include "session/take_device.h"
#include "sim/simulate.h"

namespace spillway {
namespace {

// A plan may have no output folder yet: then the folder that a probe without one measures.
std::filesystem::path output_or_current(const TrainOptions& options) {
  return options.output_dir.empty() ? std::filesystem::current_path() : std::filesystem::path(options.output_dir);
}

std::int64_t sequence_length_of(const TrainOptions& options, const ModelConfig& config) {
  const std::int64_t most = config.max_position_embeddings;
  if (options.max_seq_len == 0) return std::min(most, default_seq_len);
  if (options.max_seq_len > most) {
    throw UserError("max_seq_len: {} is more than the {} positions of the model (max_position_embeddings)",
                    options.max_seq_len, most);
  }
  return options.max_seq_len;
}

// Beyond these a plan alone would take gigabytes.
constexpr std::int64_t most_tokens_in_a_micro_batch = std::int64_t{1} << 20;

StepShape step_shape_of(const TrainOptions& options, const ModelConfig& config) {
  StepShape shape{options.per_device_train_batch_size, sequence_length_of(options, config),
                  options.gradient_accumulation_steps};
  shape.late_head_gradient = options.late_head_gradient;
  if (shape.tokens() > most_tokens_in_a_micro_batch) {
    throw UserError(
        "per_device_train_batch_size: {} sequences of {} tokens are more than {} tokens; make it smaller and "
        "gradient_accumulation_steps larger",
        shape.sequences, shape.sequence_length, most_tokens_in_a_micro_batch);
  }
  return shape;
}

Moments moments_of(const TrainOptions& options) { return options.moments == "8bit" ? Moments::packed : Moments::f32; }

Cut cut_of(const TrainOptions& options) {
  Cut cut = cut_for(moments_of(options));
  if (options.piece_elements > 0) cut.piece_elements = options.piece_elements;
  if (options.tile_elements > 0) cut.tile_elements = options.tile_elements;
  cut.large_head = options.device == "cuda";
  return cut;
}

// A manifest being made, by piece.
std::int64_t commit_bytes(const State& state) { return std::ssize(state.pieces()) * 256; }

// The threads that serve metrics, and a page being served: 1.2 MiB.
constexpr std::int64_t endpoint_bytes = 2 * mib;

// What a commit writes that this plan does not: state that stays in memory. Nothing where the plan commits.
std::int64_t extra_commit_bytes(const Layout& layout, const Plan& plan) {
  std::vector<bool> written(layout.bundles.size(), false);
  for (const Instr& instr : plan.instrs) {
    if (instr.kind == Instr::Kind::write) written[index_of(plan.stays[index_of(instr.stays.front())].bundle)] = true;
  }
  std::int64_t bytes = 0;
  for (std::size_t b = 0; b < layout.bundles.size(); ++b) {
    if (layout.bundles[b].committed && !written[b]) bytes += layout.bundles[b].bytes;
  }
  return bytes;
}

}  // namespace

TrainingSetup::TrainingSetup(const TrainOptions& given, const WorkChoice* near)
    : options(given),
      config(read_hf_config(std::filesystem::path(given.model) / "config.json")),
      folder(given.model),
      files(folder, config.model),
      choices(choose(given.device == "cuda" && given.dtype == "auto" ? "bf16" : given.dtype, given.threads,
                     given.memory_bytes, given.spill_dir, output_or_current(given), notes)),
      shape(step_shape_of(given, config.model)),
      sequence_length(shape.sequence_length),
      model(fresh_model()) {
  for (const std::string& note : config.notes) notes.push_back(note);
  choices.huge_pages = given.huge_pages;
  choices.lays_pages = given.flat_pages != "never";
  take_device(*this);
  if (given.moments != "f32") notes.push_back("moments of matrices have 8 bits: losses and weights differ from f32");
  for (std::string& sentence : idle_requests(given)) notes.push_back(std::move(sentence));
  if (given.save_steps >= 0) {
    choices.commits = given.save_steps == 1 ? Commits::all : Commits::some;
    choices.reserved_bytes += commit_bytes(model.state());
    choices.retained_commits = given.save_total_limit;
  }
  if (!given.metrics_address.empty()) choices.reserved_bytes += endpoint_bytes;
  choices.exports = given.export_steps > 0;
  if (!given.eval_data.empty()) {
    StepShape one = shape;
    one.micro_batches = 1;
    evaluation = record_evaluation(model, one);
  }
  if (given.telemetry) choices.ring_steps = given.trace.empty() ? 2 : given.trace_steps + 1;
  choose_steps(near);
  note_missing_memory();
  if (guessed_the_disk())
    notes.push_back(given.machine.empty()
                        ? "how fast the disk is, is assumed: `spillway probe` measures it, for this run and later ones"
                        : fmt::format("how fast the disk is, is assumed: {} has no disks", given.machine));
  if (std::string note = note_on_updates(*this); !note.empty()) notes.push_back(std::move(note));
}

// What choosing keeps goes with it.
void TrainingSetup::choose_steps(const WorkChoice* near) {
  StepPlanner planner(*this);
  StepChooser chooser(*this, planner);
  chooser.choose(near);
  planner.finish();
  if (planned.fits() && steps.go_both_ways()) clip_costs = chooser.simulated_clip_costs();
  if (std::string note = chooser.note_on_work(); !note.empty()) notes.push_back(std::move(note));
}

// What a step is made of is listed op by op: of many micro-batches that is more than what they compute with.
std::string_view TrainingSetup::advice() const {
  const bool lists_are_large = list_bytes(planned) > planned.min_memory_bytes / 2 && !planned.device_is_too_small();
  return shape.micro_batches > 1 && lists_are_large ? ", or make gradient_accumulation_steps smaller"
                                                    : ", or make per_device_train_batch_size or max_seq_len smaller";
}

// Taking memory that is not there is no failure on Linux: others, or the run, are ended later.
void TrainingSetup::note_missing_memory() {
  const std::int64_t there =
      options.machine.empty() ? available_memory_bytes() : read_machine(options.machine).memory_bytes;
  if (!planned.fits() || there == 0 || planned.peak_memory_bytes() <= there) return;
  notes.push_back(fmt::format("memory: {} are planned for, and {} are there; give less, or the system may end the run",
                              format_bytes(planned.peak_memory_bytes()), format_bytes(there)));
}

bool TrainingSetup::guessed_the_disk() const {
  if (!planned.fits() || work.tried.size() < 2) return false;
  return recall_machine(options.machine, choices, planned.layout.page_bytes).disk.source == RateSource::predicted;
}

Timeline TrainingSetup::simulated(const Plan& plan, const StepRates& rates) const {
  const bool is_update = plan.program >= std::ssize(steps.steps) && plan.program < steps.count();
  return options.overlap_steps && !is_update ? simulate_steady(plan, planned.layout, rates)
                                             : simulate(plan, planned.layout, rates);
}

CommitPace TrainingSetup::pace() const {
  std::int64_t state_bytes = 0;
  for (const Bundle& bundle : planned.layout.bundles) state_bytes += bundle.committed ? bundle.bytes : 0;
  const bool leaves_updates = steps.usual().way == UpdateWay::deferred;
  const std::int64_t extra_bytes = extra_commit_bytes(planned.layout, planned.plans.front());
  const bool is_free = !leaves_updates && !commits_are_waited_for && CommitPace::is_free(extra_bytes, state_bytes);
  return {options.save_steps, is_free};
}

double TrainingSetup::commit_bytes_per_second(double step_seconds, const DiskRate& disk, std::int32_t step) const {
  const Plan& plan = planned.plans[static_cast<std::size_t>(step)];
  const auto bytes = static_cast<double>(extra_commit_bytes(planned.layout, plan));
  if (bytes == 0) return 0;
  return bytes / pace().seconds_between(step_seconds, bytes / disk.write_bytes_per_second);
}

KernelCache TrainingSetup::fresh_kernels() const {
  if (!choices.accelerator) return KernelCache();
  return KernelCache([device = choices.accelerator](const KernelKey& key) { return device->make_kernel(key); });
}

Model TrainingSetup::fresh_model() const {
  return {config.model, choices.dtype, Purpose::training, cut_of(options), moments_of(options)};
}

}  // namespace spillway
