// config.json of a Hugging Face model folder: text to ModelConfig and back.
//
// A key that changes the maths in a way that is not implemented is refused by name. Known keys that change nothing here
// are ignored. A key that is on neither list cannot be judged: it is ignored when its value is null, false, 0, 1.0, "",
// [] or {}, and refused otherwise. Keys that begin with '_' are private notes of the program that wrote them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace spillway {

struct HfConfig {
  ModelConfig model;
  // Sentences for the user about what the file asks for and training here does not do, such as dropout.
  std::vector<std::string> notes;
};

// Pure. `file` names the text in errors. Throws UserError, and nothing else, whatever the text.
HfConfig parse_hf_config(std::string_view text, std::string_view file);

// Reads at most 16 MiB. Throws UserError when the file is missing, DeviceError when it cannot be read.
HfConfig read_hf_config(const std::filesystem::path& path);

// The text of a config.json with the names the family uses. parse_hf_config of it gives the same ModelConfig.
std::string write_hf_config(const ModelConfig& model);

}  // namespace spillway
