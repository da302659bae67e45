// The rates of a machine as a JSON file, which `spillway probe` writes and people may; docs/formats.md has its keys.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "machine/rates.h"

namespace spillway {

// In the output folder of a run: the rates it was planned and predicted with.
inline constexpr std::string_view run_machine_name = "machine.json";

// Pure. What the text leaves out is as in assumed_rates(), and `declared` becomes the source of what it gives without
// one. Throws UserError naming `file`, key and value.
MachineRates parse_machine(std::string_view text, const std::string& file);

// Reads at most 64 MiB. Throws UserError when the file is missing or wrong.
MachineRates read_machine(const std::filesystem::path& path);

// The text of a file; parse_machine of it gives the same rates.
std::string write_machine(const MachineRates& rates);

}  // namespace spillway
