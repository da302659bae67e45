// Event files that TensorBoard opens: TFRecord framing around protobuf Events, under the tags that Hugging Face's
// Trainer uses where it has them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "telemetry/appended_file.h"
#include "telemetry/record.h"

namespace spillway {

// Owner of one file. Each step's events are handed to the system before write returns.
class TensorBoardFile {
 public:
  // Makes the directory and a new file in it, named so that TensorBoard reads it after all others there. What those
  // have from `first_step` on no longer counts: the file says that a session starts there. Throws DeviceError.
  TensorBoardFile(const std::filesystem::path& directory, std::int64_t first_step);

  void write(const StepRecord& record);  // throws DeviceError

  const std::filesystem::path& path() const { return file_.path(); }

 private:
  AppendedFile file_;
};

// One record: length, masked CRC of the length, the bytes, masked CRC of the bytes; all little-endian.
std::string tensorboard_record(const std::string& bytes);

}  // namespace spillway
