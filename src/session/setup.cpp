#include "session/setup.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"
#include "session/known_machine.h"
#include "sim/op_rates.h"
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

constexpr int most_tries_to_lay = 3;  // pages, for each weight, of what was chosen

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
  cut.large_head = options.device == "cuda";
  return cut;
}

// A manifest being made, by piece.
std::int64_t commit_bytes(const State& state) { return std::ssize(state.pieces()) * 256; }

// The threads that serve metrics, and a page being served: 1.2 MiB.
constexpr std::int64_t endpoint_bytes = 2 * mib;

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
  take_device();
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
  if (near != nullptr) most_ops_ = most_ops_for_estimate;
  if (!choose_all_on_device()) {
    std::optional<WorkChoice> before = first_on_device();
    if (near != nullptr && !before) before = recomputing_nothing(*near);
    choose_steps(before);
    choose_updates();
  }
  plan_commits();
  leave_unused_pages();
  lay_first(most_tries_to_lay);
  lay_others();
  planned.first_unplaced = {};
  recorded_.reset();
  work.score = score();
  if (planned.fits() && steps.go_both_ways()) clip_costs = simulated_clip_costs();
  planned.min_memory_bytes = needs_.min_memory_bytes;
  planned.in_memory_bytes = needs_.in_memory_bytes;
  planned.min_device_bytes = needs_.min_device_bytes;
  if (std::string note = note_on_work(); !note.empty()) notes.push_back(std::move(note));
  recalled_.reset();
  rates_.clear();
  weighed_.reset();
  if (guessed_the_disk())
    notes.emplace_back("how fast the disk is, is assumed: `spillway probe` measures it, for this run and later ones");
  say_where_updates_run();
}

// Unless asked for: what moves nothing is taken at once, and what recomputes may for no other reason.
WorkChoice TrainingSetup::recomputing_nothing(WorkChoice choice) const {
  choice.recompute = first_choice(work_limits()).recompute;
  return choice;
}

// `before` is tried first.
void TrainingSetup::choose_steps(const std::optional<WorkChoice>& before) {
  planned_ops_ = 0;
  WorkLimits limits = work_limits();
  limits.before = before;
  limits.most_ops = most_ops_;
  work = choose_work(limits, [&](const WorkChoice& choice) { return score_of(choice, first_ways(choice)); });
  if (!(work.choice == work.tried.back().choice)) plan_work(work.choice, first_ways(work.choice));
  choose_way();
}

WorkScore TrainingSetup::score_of(const WorkChoice& choice, const std::vector<UpdateWay>& ways) {
  const std::int64_t planned_before = planned_ops_;
  const bool possible = plan_unlaid(choice, ways);
  const std::optional<PlanTimes> times = possible ? lay_first(1) : std::nullopt;
  if (needs_.in_memory_bytes == 0)
    needs_ = {planned.min_memory_bytes, planned.in_memory_bytes, planned.min_device_bytes};
  WorkScore of_choice = score(0, times);
  of_choice.fits = of_choice.fits && possible;
  of_choice.ops = planned_ops_ - planned_before;
  return of_choice;
}

WorkLimits TrainingSetup::work_limits() const {
  WorkLimits limits;
  limits.layers = config.model.num_hidden_layers;
  limits.micro_batches = shape.micro_batches;
  limits.max_disk_writes_per_day = options.max_disk_writes_per_day;
  limits.order = forced_order(options);
  limits.recompute = forced_recompute(options, limits.layers);
  limits.policy = policy_named(options.policy);
  limits.deferred_layers = forced_deferral(options, limits.layers);
  // A policy that is asked for has its own, and with a device each plan is two and what choosing gains is not known.
  if (limits.policy || choices.device_bytes > 0) limits.settling = default_settling;
  return limits;
}

// A step that clips is planned first as one that does so after backward.
std::vector<UpdateWay> TrainingSetup::first_ways(const WorkChoice& choice) const {
  if (options.max_grad_norm > 0) return {UpdateWay::after};
  return {choice.deferred_layers > 0 ? UpdateWay::deferred : UpdateWay::during};
}

// As plan_ways. Choices are compared with the pages of their first plan laid.
bool TrainingSetup::plan_work(const WorkChoice& choice, const std::vector<UpdateWay>& ways) {
  const bool planned_so = plan_unlaid(choice, ways);
  if (planned_so) lay_first(1);
  return planned_so;
}

bool TrainingSetup::plan_unlaid(const WorkChoice& choice, const std::vector<UpdateWay>& ways) {
  shape.order = choice.order;
  shape.recompute = choice.recompute;
  choices.policy = choice.policy;
  choices.settling = choice.settling;
  deferred_layers_ = choice.deferred_layers;
  WorkChoice unpinned = choice;
  unpinned.pinned = 0;
  unpinned.keep = {};
  if (choice.pinned == 0 || !is_weighed(unpinned, ways)) {
    choices.pinned.clear();
    const bool planned_so = plan_ways(ways);
    if (choice.pinned == 0 || !planned_so) return planned_so;
    const WeighedState state(planned.plans.front(), planned.layout, simulated(planned.plans.front(), rates_of(0)));
    weighed_ = {unpinned, ways, choices.device_updates, state};
  }
  choices.pinned = weighed_->state.pieces_to_keep(choice.keep, choice.pinned);
  return plan_ways(ways);
}

bool TrainingSetup::is_weighed(const WorkChoice& unpinned, const std::vector<UpdateWay>& ways) const {
  return weighed_ && weighed_->unpinned == unpinned && weighed_->ways == ways &&
         weighed_->device_updates == choices.device_updates;
}

bool TrainingSetup::guessed_the_disk() const {
  if (!planned.fits() || work.tried.size() < 2) return false;
  return recall_machine(options.machine, choices, planned.layout.page_bytes).disk.source == RateSource::predicted;
}

Timeline TrainingSetup::simulated(const Plan& plan, const StepRates& rates) const {
  return options.overlap_steps ? simulate_steady(plan, planned.layout, rates) : simulate(plan, planned.layout, rates);
}

const KnownMachine& TrainingSetup::recalled() const {
  if (!recalled_) recalled_ = recall_machine(options.machine, choices, planned.layout.page_bytes);
  return *recalled_;
}

// What a Program takes on the machine as it is recalled.
const StepRates& TrainingSetup::rates_of(std::int32_t program) const {
  rates_.resize(planned.programs.size());
  StepRates& rates = rates_[static_cast<std::size_t>(program)];
  if (rates.op_seconds.empty()) {
    rates = step_rates(*planned.programs[static_cast<std::size_t>(program)], recalled().rates, recalled().disk);
  }
  return rates;
}

// What a commit writes that this plan does not: state that stays in memory. Nothing where the plan commits.
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
  const std::int64_t extra_bytes = extra_commit_bytes(planned.layout, planned.plans.front());
  const bool is_free = !leaves_updates && !commits_are_waited_for_ && CommitPace::is_free(extra_bytes, state_bytes);
  return {options.save_steps, is_free};
}

double TrainingSetup::commit_bytes_per_second(double step_seconds, const DiskRate& disk, std::int32_t step) const {
  const Plan& plan = planned.plans[static_cast<std::size_t>(step)];
  const auto bytes = static_cast<double>(extra_commit_bytes(planned.layout, plan));
  if (bytes == 0) return 0;
  return bytes / pace().seconds_between(step_seconds, bytes / disk.write_bytes_per_second);
}

PlanInTime TrainingSetup::plan_in_time() const {
  return [this](const Plan& plan, bool slow_disk) {
    StepRates rates = rates_of(plan.program);
    if (slow_disk) rates.scale_disk(1 - options.disk_margin);
    const bool repeats = verify_follows(plan, plan, planned.layout).empty();
    return repeats ? simulated(plan, rates) : simulate(plan, planned.layout, rates);
  };
}

std::optional<PlanTimes> TrainingSetup::lay_first(int tries) {
  return lay_first_flat(planned, links(), plan_in_time(), tries, options.flat_pages == "always");
}

void TrainingSetup::lay_others() { lay_others_flat(planned, choices, links(), plan_in_time()); }

// Where all steps commit one plan does both; the boundary is then its own. What a commit writes beyond may be little
// and still be waited for.
void TrainingSetup::plan_commits() {
  if (choices.commits != Commits::some || !planned.fits()) return;
  commits_are_waited_for_ = false;
  if (pace().every_step()) {
    commits_are_waited_for_ = true;  // so that the step is scored as one whose commits are spaced out
    const WorkScore spaced_out = score();
    choices.commits = Commits::all;
    plan_steps();
    lay_first(1);  // as what it is compared with
    const bool waits = cost_of(score()) > cost_of(spaced_out) * (1 + CommitPace::busy_share);
    commits_are_waited_for_ = waits && spaced_out.seconds < CommitPace::least_seconds;  // longer steps all commit
    if (!commits_are_waited_for_) return;
    choices.commits = Commits::some;
    plan_steps();
    lay_first(1);
  }
  const PlanLinks how = links();
  for (std::size_t p = 0; p < planned.programs.size(); ++p) {
    if (how.may_commit(p)) add_plan(planned, p, planned.plans.front().pages, choices, how, true);
  }
}

namespace {

struct Moved {
  std::int64_t link_bytes = 0;
  std::int64_t disk_bytes = 0;
  std::int64_t commit_bytes = 0;  // to and from disk, of plans that commit

  bool is_more_than(const Moved& other) const {
    return link_bytes > other.link_bytes || disk_bytes > other.disk_bytes || commit_bytes > other.commit_bytes;
  }
};

Moved moved_by(const PlannedPrograms& planned) {
  Moved all;
  for (std::size_t p = 0; p < planned.plans.size(); ++p) {
    const Plan& plan = planned.plans[p];
    all.link_bytes += plan.up_bytes + plan.down_bytes;
    (planned.commits(static_cast<std::int32_t>(p)) ? all.commit_bytes : all.disk_bytes) +=
        plan.traffic.read_bytes + plan.traffic.write_bytes;
  }
  return all;
}

}  // namespace

// Below a device the host's memory has what the device has no room for, which may be nothing: then no more pages are
// taken than there is use for, as far as a step moves no more for it and is no slower. Where steps commit now and then,
// all that is committed passes through the host's pages faster than the disk takes it.
void TrainingSetup::leave_unused_pages() {
  if (!planned.has_device() || !planned.fits() || choices.commits == Commits::all) return;
  const Moved before = moved_by(planned);
  if (before.disk_bytes > 0) return;  // for want of pages
  const double cost_before = cost_of(score());
  const Commits commits = choices.commits;
  std::int64_t used = 0;
  for (const Plan& plan : planned.plans) used = std::max(used, plan.peak_pages);
  const std::int64_t spare =
      visit_pages(planned.layout) + (commits == Commits::some ? committed_pages(planned.layout) : 0);
  if (spare >= planned.plans.front().pages) return;
  for (const std::int64_t most : {spare, used + spare, std::int64_t{0}}) {
    choices.most_pages = most;
    choices.commits = commits;  // those of plans in other pages may be different ones
    plan_steps();
    plan_commits();
    const bool is_no_worse = planned.fits() && cost_of(score()) <= cost_before * (1 + least_gain);
    if (is_no_worse && !moved_by(planned).is_more_than(before)) return;
  }
}

// Of a training step as it is planned now; `times`: its own, where they are known.
WorkScore TrainingSetup::score(std::int32_t step, const std::optional<PlanTimes>& times) const {
  WorkScore score;
  score.fits = planned.fits();
  if (!score.fits) return score;
  const Plan& plan = planned.plans[static_cast<std::size_t>(step)];
  score.link_bytes = plan.up_bytes + plan.down_bytes;
  score.read_bytes = plan.traffic.read_bytes;
  const DiskWrites writes = disk_writes(plan, planned.layout);
  score.state_write_bytes = writes.state_bytes;
  score.local_write_bytes = writes.local_bytes;
  StepRates rates = rates_of(step);
  const Timeline timeline = times ? times->timeline : simulated(plan, rates);
  score.seconds = timeline.seconds;
  score.stalled_seconds = timeline.stalled_seconds;
  score.slowed_seconds = timeline.slowed_seconds();
  if (options.disk_margin > 0 && score.read_bytes + score.write_bytes() > 0) {
    rates.scale_disk(1 - options.disk_margin);
    score.slow_disk_seconds = times ? times->slow_disk_seconds : simulated(plan, rates).seconds;
  }
  score.commit_bytes_per_second = commit_bytes_per_second(score.seconds, recalled().disk, step);
  return score;
}

Model TrainingSetup::fresh_model() const {
  return {config.model, choices.dtype, Purpose::training, cut_of(options), moments_of(options)};
}

// False when the budget is too small, or when a speculative step would have nothing to update early.
bool TrainingSetup::plan_ways(const std::vector<UpdateWay>& ways) {
  ways_ = ways;
  const Recorded wanted{shape.order, shape.recompute, deferred_layers_, ways};
  if (recorded_ == wanted) {
    plan_again(planned, choices, links());
    count_planned_ops();
    return planned.fits();
  }
  recorded_.reset();
  const bool changes_model = std::any_of(ways.begin(), ways.end(), [](UpdateWay way) {
    return way == UpdateWay::speculative || way == UpdateWay::deferred;
  });
  if (model.keeps_gradients() || changes_model) {  // and with what was planned before, they are not of these ways
    model = fresh_model();
    kernels = fresh_kernels();
  }
  PieceSet speculated = all_weights(model.state());
  plan_recorded(ways, speculated);
  const std::int32_t speculative = steps.index_of_step(UpdateWay::speculative);
  if (speculative < 0) recorded_ = wanted;
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
  planned = PlannedPrograms();  // as in plan_steps
  rates_.clear();
  steps = StepPrograms();
  steps = record_steps(model, shape, ways, speculated, deferred_weights());
  plan_steps();
}

PieceSet TrainingSetup::deferred_weights() const {
  return deferred_layers_ > 0 ? weights_of_layers(model, deferred_layers_) : all_weights(model.state());
}

PlanLinks TrainingSetup::links() const {
  PlanLinks links{steps.boundaries(), steps.index_of_step(UpdateWay::speculative),
                  speculated_pieces(steps.speculated, model), steps.ends()};
  if (evaluation) links.boundaries.push_back(0);
  return links;
}

// What was planned goes first: holes that it would leave between what stays are resident for the whole run.
void TrainingSetup::plan_steps() {
  planned = PlannedPrograms();
  rates_.clear();
  std::vector<const Program*> programs = steps.programs();
  if (evaluation) programs.push_back(&evaluation->program);
  const bool of_device = choices.accelerator && options.page_size_bytes == 0;
  planned = plan_programs(std::move(programs), model.state(), choices, kernels, config.model.vocab_size,
                          of_device ? accelerator_page_bytes : options.page_size_bytes, links());
  count_planned_ops();
}

void TrainingSetup::count_planned_ops() {
  for (const Program* program : planned.programs) planned_ops_ += static_cast<std::int64_t>(program->ops.size());
}

}  // namespace spillway
