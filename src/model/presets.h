// Sizes of published models, as their config.json files have them.
#pragma once

#include <span>
#include <string_view>

#include "model/config.h"

namespace spillway {

struct Preset {
  std::string_view name;
  std::string_view what;  // one line for the help
  ModelConfig config;     // vocab_size 0: as the tokenizer needs
};

std::span<const Preset> presets();

// Null when there is none of that name.
const Preset* find_preset(std::string_view name);

}  // namespace spillway
