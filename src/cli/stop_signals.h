// SIGINT and SIGTERM finish the step, commit and end the run; a second one ends the process at once. SIGUSR1 commits
// and the run goes on.
#pragma once

#include "session/run_control.h"

namespace spillway {

// What the handlers tell; lives as long as the process.
RunControl& run_control();

// From now on. Until then these signals end the process, when there is nothing yet that could be lost.
void take_stop_signals();

}  // namespace spillway
