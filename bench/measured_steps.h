// Steps of a plan as they were run: when each instruction began and ended, and what each took, to be put into the
// simulator.
#pragma once

#include <vector>

#include "machine/rates.h"
#include "session/setup.h"
#include "sim/simulate.h"

namespace spillway::bench {

struct MeasuredStep {
  double seconds = 0;          // from the end of the last op of the step before to its own last op
  std::vector<double> starts;  // by instruction, from the end of the step before; of ops and moves
  std::vector<double> ends;
  spillway::StepRates rates;  // what ops took, their pages' attaching included, and moves; waking up is the machine's
};

// Runs `steps` steps of the training plan, on weights that are zero, which takes the same time.
std::vector<MeasuredStep> measure_steps(TrainingSetup& setup, const MachineRates& machine, int steps);

}  // namespace spillway::bench
