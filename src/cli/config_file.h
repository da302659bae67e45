// Options in YAML: one mapping from key to value, or to a list of values.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "session/options.h"

namespace spillway {

// Sets what the text gives; a key without a value leaves its default. `file` names the text in errors. Throws
// UserError, and nothing else, whatever the text.
void parse_config(std::string_view text, std::string_view file, std::span<const Option> rows);

void load_config(const std::filesystem::path& path, std::span<const Option> rows);

// All options with their values, in groups; parse_config reads it back to the same values. Experimental options are
// there when they are not at their default, which `defaults` has in the same order as `rows`.
std::string print_config(std::span<const Option> rows, std::span<const Option> defaults);

// In the output folder of a run: its effective options, with what `auto` stood for.
inline constexpr std::string_view run_config_name = "run.yaml";

void write_run_config(const TrainOptions& options);

}  // namespace spillway
