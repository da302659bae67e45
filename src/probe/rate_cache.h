// Rates measured before, in the user's cache directory: one file for each machine, build and number of threads.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "machine/rates.h"

namespace spillway {

// $XDG_CACHE_HOME/spillway, or ~/.cache/spillway; empty when neither is set.
std::filesystem::path cache_directory();

// The file for this machine in the directory.
std::filesystem::path cache_file(const std::filesystem::path& directory, const MachineIdentity& identity,
                                 std::int64_t threads);

// What is known of this machine at these threads; nothing when there is no file, when it is of another machine, or when
// it cannot be read.
std::optional<MachineRates> load_rates(const std::filesystem::path& directory, const MachineIdentity& identity,
                                       std::int64_t threads);

// What the file holds then. Where nothing can be written: the rates as they were, and why.
struct SharedRates {
  MachineRates rates;
  std::string failure;
};

// Adds what was measured to the file. What the file has already stays as it is, so that two processes that look one
// after the other see the same rates, unless `replace`.
SharedRates share_rates(const std::filesystem::path& directory, const MachineRates& rates, bool replace);

}  // namespace spillway
