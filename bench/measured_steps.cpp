#include "measured_steps.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "executor/executor.h"
#include "ops/adamw/adamw.h"

namespace spillway::bench {
namespace {

// By instruction of one step, on the recorder's clock; 0: not seen.
struct Times {
  std::vector<double> starts;
  std::vector<double> ends;
  std::vector<double> waited;  // when a wait of it was over
};

void run_steps_of(TrainingSetup& setup, int steps, EventRecorder& recorder) {
  const Plan& plan = setup.planned.plans.front();
  ExecutorOptions execution;
  execution.threads = setup.choices.threads;
  execution.spill_dirs = setup.choices.spill_dirs;
  execution.link = setup.choices.link;
  execution.recorder = &recorder;
  Executor executor(setup.planned.layout, setup.planned.programs, setup.planned.plans, setup.kernels, execution);
  AdamwProducts products;
  products.advance({});
  const AdamwScalars scalars = adamw_scalars({}, products, 1e-5);
  std::memcpy(executor.host_value(0, setup.steps.usual().adamw), &scalars, sizeof scalars);
  executor.settle(plan, plan.entry);
  for (int step = 1; step <= steps; ++step) {
    recorder.set_step(step);
    executor.run(plan);
  }
  executor.drain();
}

double seconds_of(const Event& event) { return static_cast<double>(event.time_ns) * 1e-9; }

bool begins(EventKind kind) { return kind == EventKind::op_begin || kind == EventKind::move_submit; }
bool ends(EventKind kind) { return kind == EventKind::op_end || kind == EventKind::move_complete; }

// From the end of the op before, or of the wait, so that the attaching of its pages is an op's own.
void note_ops(const Plan& plan, double begin, Times& times, MeasuredStep& step) {
  double free = begin;
  for (const InstrId id : plan.lanes[static_cast<std::size_t>(LaneId::compute)]) {
    const std::size_t i = index_of(id);
    times.starts[i] = std::max(free, times.waited[i]);
    free = times.ends[i];
    step.rates.op_seconds[index_of(plan.instrs[i].op)] = free - times.starts[i];
  }
}

// What a move took from its turn in its lane on: moves count as done in order.
void note_moves(const Plan& plan, LaneId lane, const Times& times, double& free, MeasuredStep& step) {
  for (const InstrId id : plan.lanes[static_cast<std::size_t>(lane)]) {
    if (plan.instrs[index_of(id)].stays.empty()) continue;
    const double done = std::max(free, times.ends[index_of(id)]);
    step.rates.move_seconds[index_of(id)] = done - std::max(free, times.starts[index_of(id)]);
    free = done;
  }
}

}  // namespace

std::vector<MeasuredStep> measure_steps(TrainingSetup& setup, const MachineRates& machine, int steps) {
  const Plan& plan = setup.planned.plans.front();
  const std::size_t instrs = plan.instrs.size();
  EventRecorder recorder(ring_capacities_for(static_cast<std::int64_t>(instrs), steps + 1, plan.device_pages > 0));
  run_steps_of(setup, steps, recorder);
  std::vector<Event> events;
  for (const EventSource source :
       {EventSource::compute, EventSource::disk, EventSource::copy_up, EventSource::copy_down}) {
    const EventRing::Reading reading = recorder.ring(source).read(0, events);
    SPILLWAY_CHECK(reading.lost == 0, "{} events were overwritten", reading.lost);
  }
  const auto count = static_cast<std::size_t>(steps);
  std::vector<Times> times(
      count, {std::vector<double>(instrs, 0), std::vector<double>(instrs, 0), std::vector<double>(instrs, 0)});
  std::vector<double> ended(count + 1, 0);  // the first: when the first step began
  for (const Event& event : events) {
    if (event.step < 1 || event.step > steps) continue;
    const auto step = static_cast<std::size_t>(event.step);
    if (event.kind == EventKind::plan_begin && step == 1) ended[0] = seconds_of(event);
    if (event.kind == EventKind::plan_end) ended[step] = seconds_of(event);
    if (event.instr < 0) continue;
    const auto instr = static_cast<std::size_t>(event.instr);
    if (begins(event.kind)) times[step - 1].starts[instr] = seconds_of(event);
    if (ends(event.kind)) times[step - 1].ends[instr] = seconds_of(event);
    if (event.kind == EventKind::wait_end) times[step - 1].waited[instr] = seconds_of(event);
  }
  std::vector<MeasuredStep> measured(count);
  std::array<double, lane_count> free{};  // by lane
  for (std::size_t s = 0; s < count; ++s) {
    MeasuredStep& step = measured[s];
    step.seconds = ended[s + 1] - ended[s];
    step.rates.wake_seconds = machine.wake_seconds;
    step.rates.op_seconds.resize(setup.steps.usual().program.ops.size());
    step.rates.move_seconds.resize(instrs);
    note_ops(plan, ended[s], times[s], step);
    for (const LaneId lane : {LaneId::read, LaneId::write, LaneId::up, LaneId::down}) {
      note_moves(plan, lane, times[s], free[static_cast<std::size_t>(lane)], step);
    }
    for (std::size_t i = 0; i < instrs; ++i) {
      step.starts.push_back(times[s].starts[i] - ended[s]);
      step.ends.push_back(times[s].ends[i] - ended[s]);
    }
  }
  return measured;
}

}  // namespace spillway::bench
