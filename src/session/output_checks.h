// What a run asks of the places it will write to, before it takes its time: a run of hours must not end on a folder
// that was never there. UserError names the key; a disk without room is a DeviceError.
#pragma once

#include <filesystem>

#include "session/setup.h"

namespace spillway {

// The folder of the trace, and that it replaces no data, model, machine file or record of the commits.
void require_trace_can_be_written(const TrainOptions& options);

// The folder of the event files, where there are to be any; it is made.
void require_events_can_be_written(const TrainOptions& options);
std::filesystem::path event_folder(const TrainOptions& options);

// Room in the output folder for the model, and for one export where there are any.
void require_output_space(const TrainingSetup& setup);

}  // namespace spillway
