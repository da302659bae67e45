// SIGINT and SIGTERM finish the step, commit and end the run; while it loads they end it when the piece at hand is
// loaded. A second one ends the process at once. SIGUSR1 commits and the run goes on; while it loads, the first step
// commits.
#pragma once

#include "session/run_control.h"

namespace spillway {

// What the handlers tell; lives as long as the process.
RunControl& run_control();

// From now on. Until then these signals end the process.
void take_stop_signals();

}  // namespace spillway
