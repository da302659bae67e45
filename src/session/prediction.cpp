#include "session/prediction.h"

#include <algorithm>
#include <array>

#include "base/bytes.h"
#include "base/error.h"
#include "session/run_catalog.h"
#include "sim/op_rates.h"
#include "sim/simulate.h"

namespace spillway {
namespace {

double tokens_per_second(const StepShape& shape, double seconds) {
  return static_cast<double>(shape.tokens() * shape.micro_batches) / seconds;
}

// Of a phase, added behind the others where it is new.
PhaseRow& row_of(Phase phase, std::vector<PhaseRow>& rows) {
  const std::string name(name_of(phase));
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const PhaseRow& known) { return known.phase == name; });
  return row != rows.end() ? *row : rows.emplace_back(PhaseRow{name});
}

// Compute and waiting by phase, in the order in which the phases begin. A step may end with a wait for the updates that
// run on the host.
std::vector<PhaseRow> phases_of(const Plan& plan, const Program& program, const Timeline& timeline) {
  std::vector<PhaseRow> rows;
  double free = 0;
  for (const InstrId id : plan.lanes[static_cast<std::size_t>(LaneId::compute)]) {
    PhaseRow& row = row_of(program.ops[index_of(plan.instrs[index_of(id)].op)].label.phase, rows);
    row.wait_seconds += timeline.starts[index_of(id)] - free;
    row.compute_seconds += timeline.ends[index_of(id)] - timeline.starts[index_of(id)];
    free = timeline.ends[index_of(id)];
  }
  if (timeline.seconds > free) row_of(Phase::update, rows).wait_seconds += timeline.seconds - free;
  return rows;
}

bool uses_disk(const Plan& plan) { return plan.traffic.read_bytes + plan.traffic.write_bytes > 0; }

// A step with other options on the same machine, and its tokens a second; 0 when it does not fit.
double tokens_per_second_with(const TrainOptions& options, const KnownMachine& machine, const WorkChoice& near) try {
  const TrainingSetup setup(options, &near);
  if (!setup.planned.fits()) return 0;
  const StepRates rates = step_rates(*setup.planned.programs.front(), machine.rates, machine.disk);
  return tokens_per_second(setup.shape, setup.simulated(setup.planned.plans.front(), rates).seconds);
} catch (const DoesNotFit&) {  // a device that is there has no more memory than it has
  return 0;
}

bool updates_on_host(const Plan& plan) { return !plan.lanes[static_cast<std::size_t>(LaneId::update)].empty(); }

// The same plan, where one of the machine's rates is twice what it is.
std::vector<Lever> levers_of_rates(const TrainingSetup& setup, const StepRates& rates, double step_seconds) {
  const Plan& plan = setup.planned.plans.front();
  std::vector<Lever> levers;
  const auto with = [&](std::string what, std::string resource, const auto& change) {
    StepRates other = rates;
    change(other);
    levers.push_back({std::move(what), std::move(resource), step_seconds / setup.simulated(plan, other).seconds});
  };
  with("twice the compute", "compute", [](StepRates& other) {
    for (double& seconds : other.op_seconds) seconds /= 2;
  });
  if (updates_on_host(plan)) {
    with("twice the rate of updates on the host", "update", [](StepRates& other) {
      for (double& seconds : other.host_seconds) seconds /= 2;
    });
  }
  if (plan.uses_link()) {
    with("twice the link", "link", [](StepRates& other) {
      other.link.up_bytes_per_second *= 2;
      other.link.down_bytes_per_second *= 2;
    });
  }
  const bool has_several = setup.choices.spill_dirs.size() > 1;
  if (uses_disk(plan))
    with(has_several ? "twice the disks" : "a second disk", "disk", [](StepRates& other) { other.scale_disk(2); });
  return levers;
}

// What else could be bought or asked for, with tokens a second against those of the plan.
std::vector<Lever> levers_of(const TrainingSetup& setup, const KnownMachine& machine, const StepRates& rates,
                             double step_seconds) {
  const Plan& plan = setup.planned.plans.front();
  std::vector<Lever> levers = levers_of_rates(setup, rates, step_seconds);
  if (!plan.uses_link() && !uses_disk(plan)) return levers;
  const double now = tokens_per_second(setup.shape, step_seconds);
  const auto with = [&](std::string what, const std::string& resource, const TrainOptions& options) {
    const double speedup = tokens_per_second_with(options, machine, setup.work.choice) / now;
    if (speedup == 0) return;
    // What is more of a resource can be left unused; what was found for it was looked for with less patience.
    levers.push_back({std::move(what), resource, resource.empty() ? speedup : std::max(1.0, speedup)});
  };
  TrainOptions same = setup.options;
  same.memory_bytes = setup.choices.budget_bytes;
  same.device_memory_bytes = setup.choices.device_bytes;
  TrainOptions options = same;
  options.gradient_accumulation_steps *= 2;
  if (2 * setup.shape.micro_batches <= most_micro_batches) with("twice the batch", "", options);
  options = same;
  options.memory_bytes *= 2;
  if (uses_disk(plan)) with("twice the memory", "memory", options);
  options = same;
  options.device_memory_bytes *= 2;
  if (plan.uses_link()) with("twice the device memory", "device memory", options);
  return levers;
}

// Those of rates come first: another amount of memory is planned anew, and has to give some percent more than they do.
std::string bottleneck_of(const std::vector<Lever>& levers) {
  constexpr double worth_naming = 1.05;
  const Lever* most = &levers.front();
  for (const Lever& lever : levers) {
    const bool is_planned_anew = lever.resource.ends_with("memory");
    const double least = most->speedup * (is_planned_anew ? worth_naming : 1);
    if (!lever.resource.empty() && lever.speedup > least) most = &lever;
  }
  return most->resource;
}

// Beside the trace of the run, which has the same tracks.
void write_predicted_trace(const TrainingSetup& setup, const Timeline& timeline) {
  constexpr std::array<std::string_view, 1> names{"train"};
  const Catalog catalog = catalog_of(setup.planned, setup.model.state(), names);
  const std::vector<Event> events = events_of(setup.planned.plans.front(), 0, setup.planned.layout, timeline);
  write_trace_file(setup.options.trace, catalog, visit_events(events), {"spillway plan, predicted", 1});
}

// Pages in use as a plan begins and ends stays, in the order of its instructions, by tag.
class PagesByTag {
 public:
  // Of the host.
  PagesByTag(const Plan& plan, const Layout& layout, const std::vector<MemoryTag>& tags)
      : plan_(plan), layout_(layout), tags_(tags), ending_(plan.instrs.size()) {
    std::vector<std::size_t> ends(plan.stays.size(), 0);
    for (std::size_t i = 0; i < plan.instrs.size(); ++i) {
      for (const StayId stay : plan.instrs[i].stays) ends[index_of(stay)] = i;
    }
    for (const StayId stay : plan.exit.stays) ends[index_of(stay)] = plan.instrs.size();
    for (std::size_t s = 0; s < ends.size(); ++s) {
      if (ends[s] < plan.instrs.size()) ending_[ends[s]].push_back(static_cast<StayId>(s));
    }
  }

  // When most pages are in use.
  std::vector<MemoryRow> peak() {
    std::vector<MemoryRow> most = now_;
    std::int64_t peak = -1;
    for (const StayId id : plan_.entry.stays) change(id, 1);
    for (std::size_t i = 0; i < plan_.instrs.size(); ++i) {
      for (const StayId id : plan_.instrs[i].begins) change(id, 1);
      if (used_ > peak) most = now_;
      peak = std::max(peak, used_);
      for (const StayId id : ending_[i]) change(id, -1);
    }
    return most;
  }

 private:
  void change(StayId id, std::int64_t sign) {
    const Stay& stay = plan_.stays[index_of(id)];
    if (stay.memory != MemoryId::host) return;
    const std::int64_t bytes = std::ssize(stay.pages) * layout_.page_bytes;
    MemoryRow& row = now_[static_cast<std::size_t>(tags_[index_of(stay.bundle)])];
    row.bytes += sign * bytes;
    row.waste_bytes += sign * (bytes - layout_.bundles[index_of(stay.bundle)].bytes);
    used_ += sign * bytes;
  }

  const Plan& plan_;
  const Layout& layout_;
  const std::vector<MemoryTag>& tags_;
  std::vector<std::vector<StayId>> ending_;  // by instruction
  std::vector<MemoryRow> now_ = std::vector<MemoryRow>(memory_tag_count);
  std::int64_t used_ = 0;
};

}  // namespace

std::vector<LinkRow> links_of(const TrainingSetup& setup) {
  const Plan& plan = setup.planned.plans.front();
  std::vector<LinkRow> rows{{"state", 0, 0}, {"activations and gradients", 0, 0}};
  for (const Instr& instr : plan.instrs) {
    if (!is_of_disk(instr.kind)) continue;
    const Bundle& bundle = setup.planned.layout.bundles[index_of(plan.stays[index_of(instr.stays.front())].bundle)];
    LinkRow& row = rows[bundle.state ? 0 : 1];
    (instr.kind == Instr::Kind::read ? row.read_bytes : row.write_bytes) += bundle.bytes;
  }
  return rows;
}

std::vector<MemoryRow> memory_of(const TrainingSetup& setup) {
  const PlannedPrograms& planned = setup.planned;
  const std::vector<MemoryTag> tags = bundle_tags(planned, setup.model.state());
  std::vector<MemoryRow> rows = PagesByTag(planned.plans.front(), planned.layout, tags).peak();
  std::int64_t unused = planned.peak_memory_bytes() - planned.machine.fixed_bytes;
  for (std::size_t tag = 0; tag < rows.size(); ++tag) {
    rows[tag].what = name_of(static_cast<MemoryTag>(tag));
    unused -= rows[tag].bytes;
  }
  rows[static_cast<std::size_t>(MemoryTag::unused)].bytes = unused;
  rows.insert(rows.begin(), {"process, kernels, plan", planned.machine.fixed_bytes, 0});
  return rows;
}

// A step that commits completes its update, so that the one after it finds none to make.
std::string note_on_deferring(const TrainingSetup& setup, const KnownMachine& machine) {
  const std::int64_t every = setup.options.save_steps;
  if (every <= 0 || setup.steps.usual().way != UpdateWay::deferred) return {};
  const PlannedPrograms& planned = setup.planned;
  double seconds = 0;
  Traffic moved;
  const auto add = [&](std::int32_t number, std::int64_t times) {
    const Plan& plan = planned.plans[static_cast<std::size_t>(number)];
    const StepRates rates =
        step_rates(*planned.programs[static_cast<std::size_t>(plan.program)], machine.rates, machine.disk);
    seconds += static_cast<double>(times) * setup.simulated(plan, rates).seconds;
    moved.read_bytes += times * plan.traffic.read_bytes;
    moved.write_bytes += times * plan.traffic.write_bytes;
  };
  add(planned.plan_of(setup.steps.index_of_step(UpdateWay::keep), false), 1);
  add(0, every - 1);
  add(planned.plan_of(setup.steps.index_of_flush(), true), 1);
  const std::string which = every == 1 ? "each step" : fmt::format("one of {} steps", every);
  return fmt::format(
      "{} commits and completes its update at once: in the mean a step takes {:.3g} s, {} read, {} written", which,
      seconds / static_cast<double>(every), format_bytes(moved.read_bytes / every),
      format_bytes(moved.write_bytes / every));
}

StepPrediction predict_step(const TrainingSetup& setup, const KnownMachine& machine) {
  const Plan& plan = setup.planned.plans.front();
  const Program& program = *setup.planned.programs.front();
  const StepRates rates = step_rates(program, machine.rates, machine.disk);
  const Timeline timeline = setup.simulated(plan, rates);
  if (!setup.options.trace.empty()) write_predicted_trace(setup, timeline);
  StepPrediction prediction;
  prediction.step_seconds = timeline.seconds;
  prediction.lower_bound_seconds = timeline.lower_bound_seconds();
  prediction.compute_seconds = timeline.compute_seconds;
  prediction.disk_seconds = timeline.disk_seconds;
  prediction.recompute_seconds = timeline.repeated_seconds;
  prediction.link_seconds = timeline.link_seconds;
  prediction.update_seconds = timeline.update_seconds;
  prediction.stall_seconds = timeline.stalled_seconds;
  prediction.slowed_seconds = timeline.slowed_seconds();
  prediction.commit_bytes_per_second = setup.commit_bytes_per_second(timeline.seconds, machine.disk);
  prediction.phases = phases_of(plan, program, timeline);
  prediction.levers = levers_of(setup, machine, rates, timeline.seconds);
  prediction.bottleneck = bottleneck_of(prediction.levers);
  return prediction;
}

}  // namespace spillway
