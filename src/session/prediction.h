// What `spillway plan` says of a plan on a machine: its step in virtual time, and what would make it faster.
#pragma once

#include "session/known_machine.h"
#include "session/session.h"
#include "session/setup.h"

namespace spillway {

// Bytes of a step's moves, and the pages in use when most are, by what they hold.
std::vector<LinkRow> links_of(const TrainingSetup& setup);
std::vector<MemoryRow> memory_of(const TrainingSetup& setup);

// What steps take in the mean that defer their updates, where those that commit do not; empty for all others.
std::string note_on_deferring(const TrainingSetup& setup, const KnownMachine& machine);

// With options.trace it writes what it simulated there.
StepPrediction predict_step(const TrainingSetup& setup, const KnownMachine& machine);

}  // namespace spillway
