// metrics.jsonl: one JSON object a line and a step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "telemetry/appended_file.h"
#include "telemetry/record.h"

namespace spillway {

// One line without its end. Numbers are the shortest text that reads back to the same bits, whether read as a double
// or as the type of the field; NaN and infinities are null; seconds_left and eval_loss are there when known.
std::string json_of(const StepRecord& record);

// The step of a line of the file, or 0 when it is no whole record.
std::int64_t step_of_record(std::string_view line);

// Owner of the file. Each line is handed to the system before write returns.
class MetricsFile {
 public:
  // Makes the file, or keeps of what it holds the records up to step `keep_steps`; a record that is torn, or that does
  // not follow the one before, ends what is kept. Throws DeviceError.
  explicit MetricsFile(const std::filesystem::path& path, std::int64_t keep_steps = 0);

  void write(const StepRecord& record);  // throws DeviceError

 private:
  AppendedFile file_;
};

}  // namespace spillway
