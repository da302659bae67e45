// A config.json; what is accepted is written and read back to the same. UserError is the only exception allowed.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "formats/hf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  spillway::ModelConfig config;
  try {
    config = spillway::parse_hf_config({reinterpret_cast<const char*>(data), size}, "fuzz").model;
  } catch (const spillway::UserError&) {
    return 0;
  }
  const std::string text = spillway::write_hf_config(config);
  SPILLWAY_CHECK(spillway::parse_hf_config(text, "written").model == config, "{}", text);
  return 0;
}
