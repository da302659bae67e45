// The device of a training run.
#pragma once

#include "session/setup.h"

namespace spillway {

// CUDA's, which is opened and measured, or a virtual one as the options say, or else the machine they name: into
// `choices`, with notes, and for CUDA's also `kernels`. Of a setup that has its model, and nothing planned yet. Throws
// UserError, and DoesNotFit where there is less memory than is asked for.
void take_device(TrainingSetup& setup);

}  // namespace spillway
