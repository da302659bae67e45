#include "session/step_planner.h"

#include <algorithm>
#include <limits>

#include "sim/op_rates.h"
#include "sim/simulate.h"

namespace spillway {
namespace {

constexpr int most_tries_to_lay = 3;        // pages, for each weight, of what was chosen
constexpr double more_than_any_step = 1e9;  // seconds

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

// Choices are compared with the pages of their first plan laid.
bool StepPlanner::plan(const WorkChoice& choice, const std::vector<UpdateWay>& ways) {
  const bool planned_so = plan_unlaid(choice, ways);
  if (planned_so) lay_first(1);
  return planned_so;
}

WorkScore StepPlanner::score_of(const WorkChoice& choice, const std::vector<UpdateWay>& ways) {
  const std::int64_t planned_before = planned_ops_;
  const bool possible = plan_unlaid(choice, ways);
  const std::optional<PlanTimes> times = possible ? lay_first(1) : std::nullopt;
  if (needs_.min_memory_bytes == 0) count_needs(choice);
  WorkScore of_choice = score(0, times);
  of_choice.fits = of_choice.fits && possible;
  of_choice.ops = planned_ops_ - planned_before;
  return of_choice;
}

bool StepPlanner::has_room(const WorkChoice& choice, const std::vector<UpdateWay>& ways) {
  take_shape(choice);
  recorded_.reset();
  renew_model(ways);
  record(ways, all_weights(setup_.model.state()));
  setup_.planned = lay_out_programs(programs(), setup_.model.state(), setup_.choices, setup_.kernels,
                                    setup_.config.model.vocab_size, asked_page_bytes(), links());
  count_needs(choice);
  count_planned_ops();
  return setup_.planned.may_fit();
}

void StepPlanner::count_needs(const WorkChoice& choice) {
  const PlannedPrograms& planned = setup_.planned;
  if (needs_.min_memory_bytes == 0)
    needs_ = {planned.min_memory_bytes, planned.in_memory_bytes, planned.min_device_bytes};
  needs_.min_memory_bytes = std::min(needs_.min_memory_bytes, planned.min_memory_bytes);
  if (choice.recompute.kind == RecomputeKind::none || setup_.options.recompute != "auto")
    needs_.in_memory_bytes = std::min(needs_.in_memory_bytes, planned.in_memory_bytes);
}

void StepPlanner::take_shape(const WorkChoice& choice) {
  setup_.shape.order = choice.order;
  setup_.shape.recompute = choice.recompute;
  setup_.choices.policy = choice.policy;
  setup_.choices.settling = choice.settling;
  deferred_layers_ = choice.deferred_layers;
}

bool StepPlanner::plan_unlaid(const WorkChoice& choice, const std::vector<UpdateWay>& ways) {
  take_shape(choice);
  WorkChoice unpinned = choice;
  unpinned.pinned = 0;
  unpinned.keep = {};
  if (choice.pinned == 0 || !is_weighed(unpinned, ways)) {
    setup_.choices.pinned.clear();
    const bool planned_so = plan_ways(ways);
    if (choice.pinned == 0 || !planned_so) return planned_so;
    const WeighedState state(setup_.planned.plans.front(), setup_.planned.layout,
                             setup_.simulated(setup_.planned.plans.front(), rates_of(0)));
    weighed_ = {unpinned, ways, setup_.choices.device_updates, state};
  }
  setup_.choices.pinned = weighed_->state.pieces_to_keep(choice.keep, choice.pinned);
  return plan_ways(ways);
}

bool StepPlanner::is_weighed(const WorkChoice& unpinned, const std::vector<UpdateWay>& ways) const {
  return weighed_ && weighed_->unpinned == unpinned && weighed_->ways == ways &&
         weighed_->device_updates == setup_.choices.device_updates;
}

bool StepPlanner::plan_ways(const std::vector<UpdateWay>& ways) {
  ways_ = ways;
  const Recorded wanted{setup_.shape.order, setup_.shape.recompute, deferred_layers_, ways};
  if (recorded_ == wanted) {
    plan_again(setup_.planned, setup_.choices, links());
    count_planned_ops();
    return setup_.planned.fits();
  }
  recorded_.reset();
  renew_model(ways);
  PieceSet speculated = all_weights(setup_.model.state());
  plan_recorded(ways, speculated);
  const std::int32_t speculative = setup_.steps.index_of_step(UpdateWay::speculative);
  if (speculative < 0) recorded_ = wanted;
  if (!setup_.planned.fits() || speculative < 0) return setup_.planned.fits();
  const Plan& plan = setup_.planned.plans[static_cast<std::size_t>(speculative)];
  std::vector<bool> resident(setup_.planned.layout.bundles.size(), false);
  for (const StayId stay : plan.entry.stays) resident[index_of(plan.stays[index_of(stay)].bundle)] = true;
  leave_out_residents(speculated, setup_.model, setup_.planned.layout, resident);
  do {
    if (std::find(speculated.begin(), speculated.end(), true) == speculated.end()) return false;
    plan_recorded(ways, speculated);
    if (!setup_.planned.fits()) return false;
  } while (close_over_bundles(speculated, setup_.model, setup_.planned.layout));
  return true;
}

// Gradients that are kept from step to step are state of these ways alone.
void StepPlanner::renew_model(const std::vector<UpdateWay>& ways) {
  const bool changes_model = std::any_of(ways.begin(), ways.end(), [](UpdateWay way) {
    return way == UpdateWay::speculative || way == UpdateWay::deferred;
  });
  if (!setup_.model.keeps_gradients() && !changes_model) return;
  setup_.model = setup_.fresh_model();
  setup_.kernels = setup_.fresh_kernels();
}

// What was planned goes first: holes that it would leave between what stays are resident for the whole run.
void StepPlanner::record(const std::vector<UpdateWay>& ways, const PieceSet& speculated) {
  setup_.planned = PlannedPrograms();
  rates_.clear();
  setup_.steps = StepPrograms();
  setup_.steps = record_steps(setup_.model, setup_.shape, ways, speculated, deferred_weights());
}

void StepPlanner::plan_recorded(const std::vector<UpdateWay>& ways, const PieceSet& speculated) {
  record(ways, speculated);
  plan_steps();
}

std::vector<const Program*> StepPlanner::programs() const {
  std::vector<const Program*> programs = setup_.steps.programs();
  if (setup_.evaluation) programs.push_back(&setup_.evaluation->program);
  return programs;
}

// 0: any.
std::int64_t StepPlanner::asked_page_bytes() const {
  const bool of_device = setup_.choices.accelerator && setup_.options.page_size_bytes == 0;
  return of_device ? accelerator_page_bytes : setup_.options.page_size_bytes;
}

PieceSet StepPlanner::deferred_weights() const {
  return deferred_layers_ > 0 ? weights_of_layers(setup_.model, deferred_layers_) : all_weights(setup_.model.state());
}

PlanLinks StepPlanner::links() const {
  PlanLinks links{setup_.steps.boundaries(), setup_.steps.index_of_step(UpdateWay::speculative),
                  speculated_pieces(setup_.steps.speculated, setup_.model), setup_.steps.ends()};
  if (setup_.evaluation) links.boundaries.push_back(0);
  return links;
}

void StepPlanner::plan_steps() {
  setup_.planned = PlannedPrograms();  // as in record
  rates_.clear();
  setup_.planned = plan_programs(programs(), setup_.model.state(), setup_.choices, setup_.kernels,
                                 setup_.config.model.vocab_size, asked_page_bytes(), links());
  count_planned_ops();
}

void StepPlanner::count_planned_ops() {
  for (const Program* program : setup_.planned.programs) planned_ops_ += static_cast<std::int64_t>(program->ops.size());
}

// --- Scores ---

const KnownMachine& StepPlanner::recalled() const {
  if (!recalled_) recalled_ = recall_machine(setup_.options.machine, setup_.choices, setup_.planned.layout.page_bytes);
  return *recalled_;
}

const StepRates& StepPlanner::rates_of(std::int32_t program) const {
  rates_.resize(setup_.planned.programs.size());
  StepRates& rates = rates_[static_cast<std::size_t>(program)];
  if (rates.op_seconds.empty()) {
    rates = step_rates(*setup_.planned.programs[static_cast<std::size_t>(program)], recalled().rates, recalled().disk);
  }
  return rates;
}

WorkScore StepPlanner::score(std::int32_t step, const std::optional<PlanTimes>& times) const {
  WorkScore score;
  score.fits = setup_.planned.fits();
  if (!score.fits) return score;
  const Plan& plan = setup_.planned.plans[static_cast<std::size_t>(step)];
  score.link_bytes = plan.up_bytes + plan.down_bytes;
  score.read_bytes = plan.traffic.read_bytes;
  const DiskWrites writes = disk_writes(plan, setup_.planned.layout);
  score.state_write_bytes = writes.state_bytes;
  score.local_write_bytes = writes.local_bytes;
  StepRates rates = rates_of(step);
  const Timeline timeline = times ? times->timeline : setup_.simulated(plan, rates);
  score.seconds = timeline.seconds;
  score.stalled_seconds = timeline.stalled_seconds;
  score.slowed_seconds = timeline.slowed_seconds();
  if (setup_.options.disk_margin > 0 && score.read_bytes + score.write_bytes() > 0) {
    rates.scale_disk(1 - setup_.options.disk_margin);
    score.slow_disk_seconds = times ? times->slow_disk_seconds : setup_.simulated(plan, rates).seconds;
  }
  score.commit_bytes_per_second = setup_.commit_bytes_per_second(score.seconds, recalled().disk, step);
  return score;
}

double StepPlanner::cost_of(const WorkScore& of) const {
  if (!of.fits) return std::numeric_limits<double>::infinity();
  return of.writes_at_most(setup_.options.max_disk_writes_per_day) ? of.mean_seconds()
                                                                   : more_than_any_step + of.writes_per_step();
}

// --- What is left, of what was chosen ---

PlanInTime StepPlanner::plan_in_time() const {
  return [this](const Plan& plan, bool slow_disk) {
    StepRates rates = rates_of(plan.program);
    if (slow_disk) rates.scale_disk(1 - setup_.options.disk_margin);
    const bool repeats = verify_follows(plan, plan, setup_.planned.layout).empty();
    return repeats ? setup_.simulated(plan, rates) : simulate(plan, setup_.planned.layout, rates);
  };
}

std::optional<PlanTimes> StepPlanner::lay_first(int tries) {
  return lay_first_flat(setup_.planned, links(), plan_in_time(), tries, setup_.options.flat_pages == "always");
}

void StepPlanner::lay_others() { lay_others_flat(setup_.planned, setup_.choices, links(), plan_in_time()); }

// Where all steps commit one plan does both; the boundary is then its own. What a commit writes beyond may be little
// and still be waited for.
void StepPlanner::plan_commits() {
  if (setup_.choices.commits != Commits::some || !setup_.planned.fits()) return;
  setup_.commits_are_waited_for = false;
  if (setup_.pace().every_step()) {
    setup_.commits_are_waited_for = true;  // so that the step is scored as one whose commits are spaced out
    const WorkScore spaced_out = score();
    setup_.choices.commits = Commits::all;
    plan_steps();
    lay_first(1);  // as what it is compared with
    const bool waits = cost_of(score()) > cost_of(spaced_out) * (1 + CommitPace::busy_share);
    setup_.commits_are_waited_for = waits && spaced_out.seconds < CommitPace::least_seconds;  // longer steps all commit
    if (!setup_.commits_are_waited_for) return;
    setup_.choices.commits = Commits::some;
    plan_steps();
    lay_first(1);
  }
  const PlanLinks how = links();
  for (std::size_t p = 0; p < setup_.planned.programs.size(); ++p) {
    if (how.may_commit(p)) add_plan(setup_.planned, p, setup_.planned.plans.front().pages, setup_.choices, how, true);
  }
}

// Below a device the host's memory has what the device has no room for, which may be nothing: then no more pages are
// taken than there is use for, as far as a step moves no more for it and is no slower. Where steps commit now and then,
// all that is committed passes through the host's pages faster than the disk takes it.
void StepPlanner::leave_unused_pages() {
  if (!setup_.planned.has_device() || !setup_.planned.fits() || setup_.choices.commits == Commits::all) return;
  const Moved before = moved_by(setup_.planned);
  if (before.disk_bytes > 0) return;  // for want of pages
  const double cost_before = cost_of(score());
  const Commits commits = setup_.choices.commits;
  std::int64_t used = 0;
  for (const Plan& plan : setup_.planned.plans) used = std::max(used, plan.peak_pages);
  const std::int64_t spare =
      visit_pages(setup_.planned.layout) + (commits == Commits::some ? committed_pages(setup_.planned.layout) : 0);
  if (spare >= setup_.planned.plans.front().pages) return;
  for (const std::int64_t most : {spare, used + spare, std::int64_t{0}}) {
    setup_.choices.most_pages = most;
    setup_.choices.commits = commits;  // those of plans in other pages may be different ones
    plan_steps();
    plan_commits();
    const bool is_no_worse = setup_.planned.fits() && cost_of(score()) <= cost_before * (1 + least_gain);
    if (is_no_worse && !moved_by(setup_.planned).is_more_than(before)) return;
  }
}

void StepPlanner::finish() {
  plan_commits();
  leave_unused_pages();
  lay_first(most_tries_to_lay);
  lay_others();
  if (setup_.choices.chooses_direct && !moves_directly(setup_.planned)) setup_.choices.direct = false;
  setup_.planned.first_unplaced = {};
  setup_.work.score = score();
  setup_.planned.min_memory_bytes = needs_.min_memory_bytes;
  setup_.planned.in_memory_bytes = needs_.in_memory_bytes;
  setup_.planned.min_device_bytes = needs_.min_device_bytes;
}

}  // namespace spillway
