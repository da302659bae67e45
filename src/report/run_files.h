// What the folder of a run holds, read for a report. The folder may be of a run that goes on, that was killed, or that
// something damaged: what cannot be read is left out, and a note names the file and says what is missing for it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "machine/rates.h"
#include "telemetry/flight_record.h"
#include "telemetry/record.h"

namespace spillway {

struct ConfigRow {
  std::string key;
  std::string value;
  bool usual = true;  // it is the default
};

struct RunFiles {
  std::filesystem::path folder;
  std::string name;                         // the last part of its path
  std::vector<StepRecord> steps;            // of metrics.jsonl, in order
  std::optional<FlightRecord> flight;       // flight.bin
  std::optional<FlightRecord> step_record;  // steps.bin: the same as it was before the latest evaluation
  std::optional<MachineRates> machine;      // machine.json
  std::string config_text;                  // run.yaml as it is
  // Read from it by whoever can (the command line): its keys in their order, and the budget; 0: not known.
  std::vector<ConfigRow> config;
  std::int64_t budget_bytes = 0;
  std::vector<std::string> notes;  // sentences without full stop
};

// Throws UserError when the folder is none, or holds neither metrics.jsonl nor flight.bin that can be read.
RunFiles read_run(const std::filesystem::path& folder);

// The record of a line of metrics.jsonl; nothing when the line is none. Whatever the text.
std::optional<StepRecord> record_from_json(std::string_view line);

}  // namespace spillway
