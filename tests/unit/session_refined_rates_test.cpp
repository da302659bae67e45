// The op times of a run as rates for the plans of later ones.
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "golden/model_folder.h"
#include "probe/probe.h"
#include "probe/rate_cache.h"
#include "random_program.h"
#include "recording_observer.h"
#include "scoped_variable.h"
#include "scratch_folder.h"
#include "session/refined_rates.h"
#include "session/session.h"
#include "session/setup.h"
#include "sim/op_rates.h"

namespace spillway {
namespace {

constexpr std::int32_t step = 3;
// A plan of the step and one of an evaluation.
std::vector<Plan> two_plans() {
  std::vector<Plan> plans(2);
  plans[1].program = 1;
  return plans;
}
const std::vector<Plan> plans = two_plans();

// Ops one after the other, the n-th for n + 1 milliseconds; of the step before, which counts for nothing, twice that.
std::vector<Event> events_of_ops(std::size_t ops) {
  std::vector<Event> events;
  std::int64_t now = 1000;
  for (const std::int32_t of : {step - 1, step}) {
    for (std::size_t op = 0; op < ops; ++op) {
      Event event{.time_ns = now, .step = of, .subject = static_cast<std::int32_t>(op), .kind = EventKind::op_begin};
      events.push_back(event);
      now += static_cast<std::int64_t>(op + 1) * (of == step ? 1'000'000 : 2'000'000);
      event.time_ns = now;
      event.kind = EventKind::op_end;
      events.push_back(event);
      now += 5'000'000;  // a wait
    }
  }
  return events;
}

double mean_of(const OpClasses& classes, std::size_t wanted) {
  double sum = 0;
  for (std::size_t op = 0; op < classes.of_op.size(); ++op) {
    if (classes.of_op[op] == wanted) sum += 1e-3 * static_cast<double>(op + 1);
  }
  return sum / static_cast<double>(classes.count[wanted]);
}

TEST(RefineOps, SetsEachClassToTheMeanOfItsOps) {
  const RandomPrograms programs(4200);
  const Program& program = programs.step();
  const OpClasses classes = classes_of(program);
  MachineRates rates = assumed_rates();
  std::vector<Event> events = events_of_ops(program.ops.size());
  for (const EventKind kind : {EventKind::op_begin, EventKind::op_end}) {  // of an evaluation after the step
    const std::int64_t now = events.back().time_ns + 7'000'000;
    events.push_back({.time_ns = now, .step = step, .subject = 0, .kind = kind, .plan = 1});
  }
  ASSERT_TRUE(refine_ops(program, plans, visit_events(events), step, rates));
  for (std::size_t c = 0; c < classes.classes.size(); ++c) {
    EXPECT_NEAR(op_estimate(classes.classes[c], rates).seconds, mean_of(classes, c), 1e-9);
    EXPECT_EQ(op_estimate(classes.classes[c], rates).source, RateSource::measured);
  }
}

TEST(RefineOps, TakesOffWhatABusyDiskCosts) {
  const RandomPrograms programs(4201);
  const Program& program = programs.step();
  const OpClasses classes = classes_of(program);
  std::vector<Event> events = events_of_ops(program.ops.size());
  events.insert(events.begin(), {.time_ns = 0, .kind = EventKind::move_submit});  // under way all the time
  MachineRates rates = assumed_rates();
  rates.compute_slowdown = 1.25;
  ASSERT_TRUE(refine_ops(program, plans, visit_events(events), step, rates));
  for (std::size_t c = 0; c < classes.classes.size(); ++c) {
    EXPECT_NEAR(op_estimate(classes.classes[c], rates).seconds, mean_of(classes, c) / 1.25, 1e-9);
  }
}

TEST(RefineOps, ChangesNothingByHalfAStep) {
  const RandomPrograms programs(4202);
  const Program& program = programs.step();
  std::vector<Event> events = events_of_ops(program.ops.size());
  events.pop_back();
  MachineRates rates = assumed_rates();
  EXPECT_FALSE(refine_ops(program, plans, visit_events(events), step, rates));
  EXPECT_TRUE(rates.ops.empty());
}

TEST(KeptOpTimes, ABusyMachineIsNotTheMachine) {
  EXPECT_TRUE(is_undisturbed(100, 100, 100));
  EXPECT_TRUE(is_undisturbed(100, 91, 95)) << "within a tenth";
  EXPECT_FALSE(is_undisturbed(100, 89, 100)) << "busy before";
  EXPECT_FALSE(is_undisturbed(100, 100, 50)) << "busy after";
  EXPECT_TRUE(is_undisturbed(50, 100, 100)) << "it was busy when it was probed";
}

TEST(KeptOpTimes, AreThoseOfTheRun) {
  const ScratchFolder folder;
  const ScopedVariable cache("XDG_CACHE_HOME", (folder / "cache").string());
  golden::write_model(folder / "model", golden::llama_of(2, 128, 8000), "");
  golden::write_tokens(folder / "tokens.npy", 3000, 8000);
  TrainOptions options;
  options.model = (folder / "model").string();
  options.data = {(folder / "tokens.npy").string()};
  options.output_dir = (folder / "out").string();
  options.max_steps = 4;
  options.max_seq_len = 32;
  options.dtype = "f32";
  options.threads = 2;
  options.save_steps = -1;
  options.memory_bytes = gib;
  options.order = "layer";
  options.recompute = "none";
  const TrainingSetup setup(options);
  const OpClasses classes = classes_of(*setup.planned.programs.front());
  constexpr double absurd_seconds = 1e4;
  MachineRates before = assumed_rates();
  before.identity = identify_machine();
  before.threads = options.threads;
  before.f32_flops_per_second = 1;  // so no run is a disturbed one
  for (const OpClass& what : classes.classes) before.set({what, options.threads, absurd_seconds, RateSource::measured});
  share_rates(cache_directory(), before, false);
  RecordingObserver observer;
  run_train(options, observer);
  const MachineRates after = load_rates(cache_directory(), before.identity, options.threads).value();
  EXPECT_EQ(after.ops.size(), before.ops.size());
  for (const OpClass& what : classes.classes) {
    ASSERT_NE(after.find(what), nullptr) << what.op << ' ' << what.shape;
    EXPECT_NE(after.find(what)->seconds, absurd_seconds) << what.op << ' ' << what.shape;
  }
}

}  // namespace
}  // namespace spillway
