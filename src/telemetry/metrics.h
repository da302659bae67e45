// metrics.jsonl: one JSON object a line and a step.
#pragma once

#include <filesystem>
#include <string>

#include "telemetry/record.h"

namespace spillway {

// One line without its end. Numbers are the shortest text that reads back to the same bits, whether read as a double
// or as the type of the field; NaN and infinities are null; seconds_left and eval_loss are there when known.
std::string json_of(const StepRecord& record);

// Move-only owner of the file. Each line is handed to the system before write returns.
class MetricsFile {
 public:
  // Makes the file, or empties it. Throws DeviceError.
  explicit MetricsFile(const std::filesystem::path& path);
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  ~MetricsFile();

  void write(const StepRecord& record);  // throws DeviceError

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace spillway
