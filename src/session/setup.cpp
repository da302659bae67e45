#include "session/setup.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/bytes.h"
#include "base/error.h"
#include "device/memory_info.h"
#include "ops/matmul/matmul.h"
#include "session/known_machine.h"
#include "sim/awaited.h"
#include "sim/op_rates.h"
#include "sim/simulate.h"

namespace spillway {
namespace {

// Measured on the release build with gpt2-124m and tinyllama-1.1b shapes, then rounded up by a third or more. The
// process: code, libraries and allocator before anything is recorded (12 MiB).
constexpr std::int64_t process_bytes = 16 * mib;
constexpr std::int64_t bytes_per_thread = 256 * kib;  // touched stack
constexpr std::int64_t bytes_per_product = 64 * kib;  // 44 KiB: code that oneDNN generates
constexpr std::int64_t bytes_per_kernel = 4 * kib;
constexpr std::int64_t bytes_per_op = 800;  // 580 B with its values, in Program, layout, plan and executor
constexpr std::int64_t bytes_per_value = 64;
constexpr std::int64_t bytes_per_token = 24;           // what a tokenizer leaves behind in the allocator
constexpr std::int64_t watch_bytes_per_op = 300;       // its part of the catalog
constexpr std::int64_t staging_bytes_per_element = 9;  // a piece on its way between a file and the state

std::int64_t default_budget_bytes() {
  const std::int64_t free_bytes = available_memory_bytes();
  return free_bytes - std::max(free_bytes / 10, 256 * mib);
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
  const StepShape shape{options.per_device_train_batch_size, sequence_length_of(options, config),
                        options.gradient_accumulation_steps};
  if (shape.tokens() > most_tokens_in_a_micro_batch) {
    throw UserError(
        "per_device_train_batch_size: {} sequences of {} tokens are more than {} tokens; make it smaller and "
        "gradient_accumulation_steps larger",
        shape.sequences, shape.sequence_length, most_tokens_in_a_micro_batch);
  }
  if (shape.micro_batches > most_micro_batches) {
    throw UserError(
        "gradient_accumulation_steps: {} is more than {}; make it smaller and per_device_train_batch_size "
        "larger",
        shape.micro_batches, most_micro_batches);
  }
  return shape;
}

Moments moments_of(const TrainOptions& options) { return options.moments == "8bit" ? Moments::packed : Moments::f32; }

Cut cut_of(const TrainOptions& options) {
  Cut cut = cut_for(moments_of(options));
  if (options.piece_elements > 0) cut.piece_elements = options.piece_elements;
  if (options.tile_elements > 0) cut.tile_elements = options.tile_elements;
  return cut;
}

// A manifest being made, by piece.
std::int64_t commit_bytes(const State& state) { return std::ssize(state.pieces()) * 256; }

// What an export holds at once: a slot, a piece in three forms, and a block being checked.
std::int64_t export_staging_bytes(const State& state) {
  std::int64_t largest = 0;
  for (std::size_t p = 0; p < state.pieces().size(); ++p)
    largest = std::max(largest,
                       state.bytes_of(static_cast<PieceId>(p)) / size_of(state.tensor(state.pieces()[p].tensor).dtype));
  return 8 * mib + 12 * largest;
}

}  // namespace

RunChoices choose(const std::string& dtype, std::int64_t threads, std::int64_t memory_bytes,
                  const std::vector<std::string>& spill_dir, const std::filesystem::path& default_spill_dir,
                  std::vector<std::string>& notes) {
  bound_allocator();
  clear_numeric_environment(notes);
  RunChoices choices;
  if (dtype == "auto") {
    choices.dtype = matmul_has_bf16() ? DType::bf16 : DType::f32;
    notes.push_back(fmt::format("dtype auto is {} on this processor", name_of(choices.dtype)));
  } else {
    choices.dtype = dtype == "bf16" ? DType::bf16 : DType::f32;
  }
  choices.threads = static_cast<int>(threads > 0 ? threads : processor_info().cpus);
  choices.budget_bytes = memory_bytes;
  if (memory_bytes == 0) {
    choices.budget_bytes = default_budget_bytes();
    notes.push_back(fmt::format("memory is {}, what is free less a margin", format_bytes(choices.budget_bytes)));
  }
  for (const std::string& dir : spill_dir) choices.spill_dirs.emplace_back(dir);
  if (choices.spill_dirs.empty()) choices.spill_dirs.push_back(default_spill_dir);
  return choices;
}

std::int64_t fixed_bytes_for(std::span<const Program* const> programs, const State& state, const KernelCache& kernels,
                             int threads, std::int64_t vocab_size) {
  std::int64_t largest_piece = 0;
  for (const Piece& piece : state.pieces()) {
    if (!state.tensor(piece.tensor).committed) continue;  // neither loaded nor saved
    largest_piece = std::max(largest_piece, (piece.row_end - piece.row_begin) * state.tensor(piece.tensor).cols);
  }
  std::int64_t bytes = process_bytes + largest_piece * staging_bytes_per_element + vocab_size * bytes_per_token;
  bytes += static_cast<std::int64_t>(kernels.size()) * bytes_per_kernel;
  bytes += kernels.compiled_products() * bytes_per_product;
  bytes += threads * (bytes_per_thread + round_up(kernels.scratch_bytes(), 4096));
  for (const Program* program : programs) {
    bytes += static_cast<std::int64_t>(program->ops.size()) * bytes_per_op;
    bytes += static_cast<std::int64_t>(program->values.size()) * bytes_per_value;
    bytes += HostValues::bytes_of(*program);
  }
  return round_up(bytes, mib);
}

RingCapacities rings_for(std::span<const Program* const> programs, const RunChoices& choices) {
  std::int64_t ops = 0;
  for (const Program* program : programs) ops = std::max(ops, std::ssize(program->ops));
  return ring_capacities_for(ops, choices.ring_steps);
}

// The flight record, which is mapped, and the catalog, with the text that is made of it.
static std::int64_t watch_bytes_for(std::span<const Program* const> programs, const RunChoices& choices) {
  std::int64_t ops = 0;
  for (const Program* program : programs) ops += std::ssize(program->ops);
  return round_up(ring_bytes_for(rings_for(programs, choices)) + ops * watch_bytes_per_op, mib);
}

// Counted wherever steps may commit, so that the smallest budget does not depend on how they do.
static std::int64_t second_plan_bytes_for(const Program& program) {
  return round_up(std::ssize(program.ops) * bytes_per_op, mib);
}

std::int64_t PlannedPrograms::peak_memory_bytes() const {
  return fits() ? machine.fixed_bytes + plans.front().pages * layout.page_bytes : 0;
}

static std::vector<bool> bundles_of(const std::vector<PieceId>& pieces, const Layout& layout) {
  std::vector<bool> bundles(layout.bundles.size(), false);
  for (const PieceId piece : pieces) bundles[index_of(layout.piece_places[index_of(piece)].bundle)] = true;
  return bundles;
}

std::int32_t PlannedPrograms::plan_of(std::int32_t program, bool commits) const {
  const std::int32_t plan = committing[static_cast<std::size_t>(program)];
  SPILLWAY_CHECK(!commits || plan >= 0, "no plan of program {} commits", program);
  return commits ? plan : program;
}

bool PlannedPrograms::commits(std::int32_t plan) const {
  return committing[static_cast<std::size_t>(plans[static_cast<std::size_t>(plan)].program)] == plan;
}

static std::size_t owner_of(const PlanLinks& links, std::size_t program) {
  return program < links.boundaries.size() ? static_cast<std::size_t>(links.boundaries[program]) : 0;
}

static bool may_commit(const PlanLinks& links, std::size_t program) {
  return program < links.commits.size() && links.commits[program];
}

// Another plan of a Program; `commits`: one that commits, if the Program may. A second plan of a Program begins and
// ends at the boundary of the first one.
static void add_plan(PlannedPrograms& planned, std::size_t program, std::int64_t pages, const RunChoices& choices,
                     const PlanLinks& links, bool commits) {
  const std::size_t owner = owner_of(links, program);
  const bool is_second = planned.plans.size() > program;
  const bool speculates = links.speculative == static_cast<std::int32_t>(program);
  Residents boundary;
  const std::vector<bool> speculated = bundles_of(links.speculated, planned.layout);
  const std::vector<bool> pinned = bundles_of(choices.pinned, planned.layout);
  PlanRequest request;
  request.policy = choices.policy;
  request.pinned = &pinned;
  request.commits = commits && may_commit(links, program);
  if (request.commits) planned.committing[program] = static_cast<std::int32_t>(planned.plans.size());
  if (owner != program || is_second) {
    boundary = residents_of(planned.plans[owner]);
    request.entry = &boundary;
  }
  if (speculates) request.clean = &speculated;
  planned.plans.push_back(make_plan(planned.layout, static_cast<std::int32_t>(program), pages, request));
  Plan& plan = planned.plans.back();
  for (std::size_t b = 0; speculates && b < speculated.size(); ++b) {
    if (speculated[b]) plan.held_slots += planned.layout.pages_of(static_cast<BundleId>(b));
  }
  const std::string broken = verify(plan, planned.layout, *planned.programs[program]);
  SPILLWAY_CHECK(broken.empty(), "the plan of program {} does not hold: {}", program, broken);
}

PlannedPrograms plan_programs(std::vector<const Program*> programs, const State& state, const RunChoices& choices,
                              KernelCache& kernels, std::int64_t vocab_size, std::int64_t page_bytes,
                              const PlanLinks& links) {
  PlannedPrograms planned;
  planned.programs = std::move(programs);
  planned.committing.assign(planned.programs.size(), -1);
  for (const Program* program : planned.programs) kernels.make_all(*program);
  planned.layout = lay_out(planned.programs, state, page_bytes);
  Machine& machine = planned.machine;
  machine.budget_bytes = choices.budget_bytes;
  machine.fixed_bytes = fixed_bytes_for(planned.programs, state, kernels, choices.threads, vocab_size);
  if (choices.ring_steps > 0) machine.fixed_bytes += watch_bytes_for(planned.programs, choices);
  for (std::size_t p = 0; p < planned.programs.size() && choices.commits != Commits::none; ++p) {
    if (may_commit(links, p)) machine.fixed_bytes += second_plan_bytes_for(*planned.programs[p]);
  }
  machine.fixed_bytes += choices.reserved_bytes;
  machine.page_bytes = planned.layout.page_bytes;
  const std::int64_t smallest = smallest_pages(planned.layout);
  std::int64_t in_memory = 0;
  for (std::size_t p = 0; p < planned.programs.size(); ++p) {
    in_memory = std::max(in_memory, in_memory_pages(planned.layout, static_cast<std::int32_t>(p)));
  }
  planned.min_memory_bytes = round_up(machine.fixed_bytes + smallest * machine.page_bytes, mib);
  planned.in_memory_bytes = round_up(machine.fixed_bytes + in_memory * machine.page_bytes, mib);
  const std::int64_t pages = std::min(machine.pages(), in_memory);
  if (pages < smallest) return planned;
  for (std::size_t p = 0; p < planned.programs.size(); ++p) {
    add_plan(planned, p, pages, choices, links, choices.commits == Commits::all);
  }
  return planned;
}

DiskWrites disk_writes(const Plan& plan, const Layout& layout) {
  DiskWrites writes;
  for (const Instr& instr : plan.instrs) {
    if (instr.kind != Instr::Kind::write) continue;
    const Bundle& bundle = layout.bundles[index_of(plan.stays[index_of(instr.stays.front())].bundle)];
    (bundle.state ? writes.state_bytes : writes.local_bytes) += bundle.bytes;
  }
  return writes;
}

std::string refusal(const PlannedPrograms& planned, std::string_view advice) {
  return fmt::format("{} is too small; the smallest budget that works is {}; give that much{}",
                     format_bytes(planned.machine.budget_bytes), format_budget(planned.min_memory_bytes), advice);
}

void require_fit(const PlannedPrograms& planned, std::string_view advice) {
  if (!planned.fits()) throw DoesNotFit("memory: {}", refusal(planned, advice));
}

void check_fixed_memory(const PlannedPrograms& planned) {
  malloc_trim(0);
  const std::int64_t wanted = rss_bytes() + planned.plans.front().pages * planned.layout.page_bytes;
  if (wanted <= planned.machine.budget_bytes || is_instrumented()) return;
  throw DoesNotFit("memory: {} would be resident, {} more than was planned for; give {}", format_bytes(wanted),
                   format_bytes(wanted - planned.machine.budget_bytes), format_budget(wanted));
}

void clear_numeric_environment(std::vector<std::string>& notes) {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (text.starts_with("DNNL_") || text.starts_with("ONEDNN_")) names.emplace_back(text.substr(0, text.find('=')));
  }
  for (const std::string& name : names) {
    unsetenv(name.c_str());
    notes.push_back(fmt::format("{} is set and would change numbers; it is ignored", name));
  }
}

TrainingSetup::TrainingSetup(const TrainOptions& given)
    : options(given),
      config(read_hf_config(std::filesystem::path(given.model) / "config.json")),
      folder(given.model),
      files(folder, config.model),
      choices(choose(
          given.dtype, given.threads, given.memory_bytes, given.spill_dir,
          given.output_dir.empty() ? std::filesystem::temp_directory_path() : std::filesystem::path(given.output_dir),
          notes)),
      shape(step_shape_of(given, config.model)),
      sequence_length(shape.sequence_length),
      model(fresh_model()) {
  for (const std::string& note : config.notes) notes.push_back(note);
  if (given.moments != "f32") notes.push_back("moments of matrices have 8 bits: losses and weights differ from f32");
  if (given.save_steps >= 0) {
    choices.commits = Commits::some;
    choices.reserved_bytes += commit_bytes(model.state());
  }
  if (given.export_steps > 0) choices.reserved_bytes += export_staging_bytes(model.state());
  if (!given.eval_data.empty()) {
    StepShape one = shape;
    one.micro_batches = 1;
    evaluation = record_evaluation(model, one);
  }
  if (given.telemetry) choices.ring_steps = given.trace.empty() ? 2 : given.trace_steps + 1;
  WorkLimits limits;
  limits.layers = config.model.num_hidden_layers;
  limits.micro_batches = shape.micro_batches;
  limits.max_disk_writes_per_day = given.max_disk_writes_per_day;
  limits.order = forced_order(given);
  limits.recompute = forced_recompute(given, limits.layers);
  limits.policy = forced_policy(given);
  std::int64_t min_memory_bytes = 0;
  std::int64_t in_memory_bytes = 0;
  work = choose_work(limits, [&](const WorkChoice& choice) {
    plan_work(choice);
    if (in_memory_bytes == 0) {  // what needs least, and what moves nothing and recomputes nothing
      min_memory_bytes = planned.min_memory_bytes;
      in_memory_bytes = planned.in_memory_bytes;
    }
    return score();
  });
  if (!(work.choice == work.tried.back().choice)) plan_work(work.choice);
  choose_way();
  plan_commits();
  planned.min_memory_bytes = min_memory_bytes;
  planned.in_memory_bytes = in_memory_bytes;
  if (!work.note.empty()) notes.push_back(work.note);
}

// As a step that clips after backward.
void TrainingSetup::plan_work(const WorkChoice& choice) {
  shape.order = choice.order;
  shape.recompute = choice.recompute;
  choices.policy = choice.policy;
  choices.pinned.clear();
  const std::vector<UpdateWay> usual{options.max_grad_norm > 0 ? UpdateWay::after : UpdateWay::during};
  plan_ways(usual);
  if (choice.pinned == 0 || !planned.fits()) return;
  choices.pinned = pieces_to_pin(choice.pinned);
  plan_ways(usual);
}

std::vector<PieceId> TrainingSetup::pieces_to_pin(double share) const {
  const Layout& layout = planned.layout;
  const Plan& plan = planned.plans.front();
  const auto pages = static_cast<std::int64_t>(share * static_cast<double>(plan.pages - smallest_pages(layout)));
  const std::vector<bool> bundles = most_awaited(plan, layout, timeline(), pages);
  std::vector<PieceId> pieces;
  for (std::size_t p = 0; p < layout.piece_places.size(); ++p) {
    if (bundles[index_of(layout.piece_places[p].bundle)]) pieces.push_back(static_cast<PieceId>(p));
  }
  return pieces;
}

// A step by the first plan, in virtual time.
Timeline TrainingSetup::timeline() const {
  const KnownMachine machine = recall_machine(options.machine, choices, planned.layout.page_bytes);
  return simulate_steady(planned.plans.front(), planned.layout,
                         step_rates(*planned.programs.front(), machine.rates, machine.disk));
}

// What a commit writes that this plan does not: state that stays in memory.
static std::int64_t extra_commit_bytes(const Layout& layout, const Plan& plan) {
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

CommitPace TrainingSetup::pace() const {
  std::int64_t state_bytes = 0;
  for (const Bundle& bundle : planned.layout.bundles) state_bytes += bundle.committed ? bundle.bytes : 0;
  const bool leaves_updates = steps.usual().way == UpdateWay::deferred;
  return {options.save_steps, !leaves_updates && CommitPace::is_free(extra_commit_bytes_, state_bytes)};
}

// Where all steps commit one plan does both; the boundary is then its own.
void TrainingSetup::plan_commits() {
  if (choices.commits == Commits::none || !planned.fits()) return;
  extra_commit_bytes_ = extra_commit_bytes(planned.layout, planned.plans.front());
  if (pace().every_step()) {
    choices.commits = Commits::all;
    return plan_steps();
  }
  const PlanLinks how = links();
  for (std::size_t p = 0; p < planned.programs.size(); ++p) {
    if (may_commit(how, p)) add_plan(planned, p, planned.plans.front().pages, choices, how, true);
  }
}

// Of the training step as it is planned now.
WorkScore TrainingSetup::score() const {
  WorkScore score;
  for (const Program* program : planned.programs) score.ops += static_cast<std::int64_t>(program->ops.size());
  score.fits = planned.fits();
  if (!score.fits) return score;
  const Plan& plan = planned.plans.front();
  score.read_bytes = plan.traffic.read_bytes;
  const DiskWrites writes = disk_writes(plan, planned.layout);
  score.state_write_bytes = writes.state_bytes;
  score.local_write_bytes = writes.local_bytes;
  const Timeline simulated = timeline();
  score.seconds = simulated.seconds;
  score.stalled_seconds = simulated.stalled_seconds;
  return score;
}

Model TrainingSetup::fresh_model() const {
  return {config.model, choices.dtype, Purpose::training, cut_of(options), moments_of(options)};
}

// After backward is planned already. Nothing is gained by updating earlier where nothing moves, so `auto` adapts only
// where something does. A way that does not fit beside the others, or has nothing to do, gives way.
void TrainingSetup::choose_way() {
  if (options.max_grad_norm == 0 || options.clip_mode == "after" || !planned.fits()) return;
  const Traffic& traffic = planned.plans.front().traffic;
  if (options.clip_mode == "auto" && traffic.read_bytes + traffic.write_bytes == 0) return;
  std::vector<UpdateWay> ways{UpdateWay::speculative, UpdateWay::deferred};
  if (options.clip_mode == "deferred") ways = {UpdateWay::deferred};
  if (options.clip_mode == "speculative") ways = {UpdateWay::speculative};
  if (!plan_ways(ways)) plan_ways({UpdateWay::after});
}

// False when the budget is too small, or when a speculative step would have nothing to update early.
bool TrainingSetup::plan_ways(const std::vector<UpdateWay>& ways) {
  if (model.keeps_gradients()) {  // and with what was planned then, they are not of this run
    model = fresh_model();
    kernels = KernelCache();
  }
  PieceSet speculated = all_weights(model.state());
  plan_recorded(ways, speculated);
  const std::int32_t speculative = steps.index_of_step(UpdateWay::speculative);
  if (!planned.fits() || speculative < 0) return planned.fits();
  const Plan& plan = planned.plans[static_cast<std::size_t>(speculative)];
  std::vector<bool> resident(planned.layout.bundles.size(), false);
  for (const StayId stay : plan.entry.stays) resident[index_of(plan.stays[index_of(stay)].bundle)] = true;
  leave_out_residents(speculated, model, planned.layout, resident);
  do {
    if (std::find(speculated.begin(), speculated.end(), true) == speculated.end()) return false;
    plan_recorded(ways, speculated);
    if (!planned.fits()) return false;
  } while (close_over_bundles(speculated, model, planned.layout));
  return true;
}

void TrainingSetup::plan_recorded(const std::vector<UpdateWay>& ways, const PieceSet& speculated) {
  steps = record_steps(model, shape, ways, speculated);
  plan_steps();
}

PlanLinks TrainingSetup::links() const {
  PlanLinks links{steps.boundaries(), steps.index_of_step(UpdateWay::speculative),
                  speculated_pieces(steps.speculated, model), steps.ends()};
  if (evaluation) links.boundaries.push_back(0);
  return links;
}

void TrainingSetup::plan_steps() {
  std::vector<const Program*> programs = steps.programs();
  if (evaluation) programs.push_back(&evaluation->program);
  planned = plan_programs(std::move(programs), model.state(), choices, kernels, config.model.vocab_size,
                          options.page_size_bytes, links());
}

}  // namespace spillway
