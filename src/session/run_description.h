// What a training run says of itself before its first step: what it is, what its plans are and should take, and the
// machine they were made for.
#pragma once

#include <cstdint>

#include "session/run_state.h"
#include "session/setup.h"
#include "telemetry/catalog.h"
#include "telemetry/record.h"
#include "text/dataset.h"

namespace spillway {

// What the run is; where it stands is left at the start. `tokens` null: no step is to be made.
RunState identity_of(const TrainingSetup& setup, const TokenStore* tokens);

RunSummary summary_of(const TrainingSetup& setup, std::int64_t total_steps);

// The Programs and plans as sinks of events know them, with what steps should take where the machine's rates are known
// already: a run does not measure.
Catalog catalog_of(const TrainingSetup& setup);

// Keeps what is known of the machine, the times of single ops aside, in the output folder, for a report. Throws
// DeviceError.
void write_run_machine(const TrainingSetup& setup);

}  // namespace spillway
