// What ops took in a step that was run, for the plans of later runs: nearer to the truth than what a probe finds, whose
// ops run alone.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "machine/rates.h"
#include "program/program.h"
#include "session/setup.h"
#include "telemetry/event_recorder.h"

namespace spillway {

// Sets the rates of the classes of a Program's ops to the mean of what they took in `step`, by the events of a run in
// order of time; `plans` are the run's, and this is their Program 0. Computing is slower while moves are under way, and
// what rates.compute_slowdown says of that is taken off. False, and nothing is changed, where not every op of the step
// is among the events.
bool refine_ops(const Program& program, std::span<const Plan> plans, const VisitEvents& events, std::int32_t step,
                MachineRates& rates);

// Whether what ran while products reached `before`, and later `after`, had the machine for itself, whose products reach
// `known` when it is idle (FLOP/s): neither is more than a tenth slower. Faster ones are no fault: then it is `known`
// that was measured beside something else.
bool is_undisturbed(double known, double before, double after);

// The same for the training Program of a run and the rates of the user's cache, where this machine is in it. Products
// before and after the run tell whether it had the machine for itself: what a busy one takes would mislead later plans.
class KeptOpTimes {
 public:
  // Before the run takes its memory. The setup outlives it.
  explicit KeptOpTimes(const TrainingSetup& setup);

  // At the end of the run: keeps what ops took in `step`. Returns why not, as a note for the user; empty where they
  // were kept, or none were wanted.
  std::string keep(const EventRecorder& recorder, std::int64_t step) const;

 private:
  std::optional<MachineRates> known() const;
  double products() const;

  const TrainingSetup& setup_;
  double before_ = 0;  // 0: nothing is to be kept
};

}  // namespace spillway
