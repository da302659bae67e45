#include "base/bytes.h"
#include "base/error.h"
#include "session/known_machine.h"
#include "session/run_catalog.h"
#include "session/session.h"
#include "session/setup.h"
#include "sim/op_rates.h"
#include "sim/simulate.h"

namespace spillway {
namespace {

// State by kind: what it takes, and what of it is in memory between steps.
std::vector<PlacementRow> placement_of(const TrainingSetup& setup) {
  const Plan& plan = setup.planned.plans.front();
  const Layout& layout = setup.planned.layout;
  std::vector<bool> resident(layout.bundles.size(), false);
  for (const StayId stay : plan.entry.stays) resident[index_of(plan.stays[index_of(stay)].bundle)] = true;
  std::vector<PlacementRow> rows{{"weights", 0, 0, 0}, {"optimizer", 0, 0, 0}, {"activations and gradients", 0, 0, 0}};
  const State& state = setup.model.state();
  for (std::size_t p = 0; p < state.pieces().size(); ++p) {
    const auto id = static_cast<PieceId>(p);
    PlacementRow& row = rows[state.tensor(state.piece(id).tensor).trainable ? 0 : 1];
    const std::int64_t bytes = state.bytes_of(id);
    row.bytes += bytes;
    (resident[index_of(layout.piece_places[p].bundle)] ? row.memory_bytes : row.disk_bytes) += bytes;
  }
  std::int64_t alive = 0;
  for (const auto& uses : layout.programs.front().uses) {
    for (const Use& use : uses) alive += use.creates ? layout.bundles[index_of(use.bundle)].bytes : 0;
    rows[2].bytes = std::max(rows[2].bytes, alive);
    for (const Use& use : uses) alive -= use.ends ? layout.bundles[index_of(use.bundle)].bytes : 0;
  }
  rows[2].disk_bytes = plan.local_slots * layout.page_bytes;
  rows[2].memory_bytes = std::max<std::int64_t>(0, rows[2].bytes - rows[2].disk_bytes);
  return rows;
}

// Beside the trace of the run, which has the same tracks.
void write_predicted_trace(const TrainingSetup& setup, const Timeline& timeline) {
  constexpr std::array<std::string_view, 1> names{"train"};
  const Catalog catalog = catalog_of(setup.planned, setup.model.state(), names);
  write_trace_file(setup.options.trace, catalog,
                   events_of(setup.planned.plans.front(), 0, setup.planned.layout, timeline),
                   {"spillway plan, predicted", 1});
}

StepPrediction predict_step(TrainingSetup& setup) {
  const Plan& plan = setup.planned.plans.front();
  const Layout& layout = setup.planned.layout;
  const KnownMachine machine = know_machine(setup.options.machine, setup.choices, setup.planned.programs, setup.kernels,
                                            layout.page_bytes, plan.pages * layout.page_bytes);
  StepRates rates = step_rates(*setup.planned.programs.front(), machine.rates, machine.disk);
  const Timeline timeline = simulate(plan, layout, rates);
  if (!setup.options.trace.empty()) write_predicted_trace(setup, timeline);
  StepPrediction prediction;
  prediction.step_seconds = timeline.seconds;
  prediction.lower_bound_seconds = timeline.lower_bound_seconds();
  prediction.compute_seconds = timeline.compute_seconds;
  prediction.disk_seconds = timeline.disk_seconds;
  prediction.stall_seconds = timeline.stalled_seconds;
  prediction.bottleneck = std::string(timeline.bottleneck());
  rates.read_bytes_per_second *= 2;
  rates.write_bytes_per_second *= 2;
  rates.mixed_bytes_per_second *= 2;
  prediction.second_disk_speedup = timeline.seconds / simulate(plan, layout, rates).seconds;
  return prediction;
}

}  // namespace

PlanReport run_plan(const TrainOptions& options, bool predict) {
  validate(options, TrainUse::plan);
  TrainingSetup setup(options);
  const PlannedPrograms& planned = setup.planned;
  PlanReport report;
  report.fits = planned.fits();
  report.budget_bytes = setup.choices.budget_bytes;
  report.min_memory_bytes = planned.min_memory_bytes;
  report.in_memory_bytes = planned.in_memory_bytes;
  report.parameters = setup.model.parameter_count();
  report.tokens_per_step = setup.shape.tokens() * setup.shape.micro_batches;
  report.total_steps = std::max<std::int64_t>(0, options.max_steps);
  report.dtype = std::string(name_of(setup.choices.dtype));
  report.notes = setup.notes;
  if (planned.fits()) {
    report.peak_memory_bytes = planned.peak_memory_bytes();
    report.disk_read_bytes_per_step = planned.plans.front().traffic.read_bytes;
    report.disk_write_bytes_per_step = planned.plans.front().traffic.write_bytes;
    report.disk_state_write_bytes_per_step = disk_writes(planned.plans.front(), planned.layout).state_bytes;
    report.work = describe(setup.work.choice);
    report.placement = placement_of(setup);
    if (predict) report.prediction = predict_step(setup);
  } else {
    report.advice = refusal(planned, training_advice);
  }
  return report;
}

}  // namespace spillway
