// What ops took in a step that was run, for the plans of later runs: nearer to the truth than what a probe finds, whose
// ops run alone.
#pragma once

#include <span>

#include "machine/rates.h"
#include "program/program.h"
#include "session/setup.h"
#include "telemetry/event_recorder.h"

namespace spillway {

// Sets the rates of the classes of a Program's ops to the mean of what they took in `step`, by the events of a run in
// order of time; `plans` are the run's, and this is their Program 0. Computing is slower while moves are under way, and
// what rates.compute_slowdown says of that is taken off. False, and nothing is changed, where not every op of the step
// is among the events.
bool refine_ops(const Program& program, std::span<const Plan> plans, std::span<const Event> events, std::int32_t step,
                MachineRates& rates);

// The same for the training Program, with the rates of the user's cache, where this machine is in it. Copies all
// events, so it is for the end of a run, when its pages are free again.
void keep_op_times(const TrainingSetup& setup, const EventRecorder& recorder, std::int64_t step);

}  // namespace spillway
