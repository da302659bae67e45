// What is known of the machine that a run is planned for: from a file, from what was measured before, or measured now.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "executor/kernel_table.h"
#include "machine/rates.h"
#include "session/run_choices.h"

namespace spillway {

struct KnownMachine {
  MachineRates rates;
  std::vector<double> disk_shares;  // by spill directory: of the slots
  DiskRate disk;                    // all of them together
  bool measured = false;            // just now, something that was not known
  std::vector<std::string> notes;   // why a disk could not be measured, or nothing be kept
};

// With `machine_file` its rates are taken, and nothing is measured. Otherwise what the cache lacks for these Programs
// and spill directories is measured, for at most about four seconds and in at most `memory_bytes`, and kept there; in
// less than 16 MiB nothing is measured, and no disk that is nearly full or on which it fails: of these what is kept
// counts, or is assumed. Throws UserError when the file is wrong.
KnownMachine know_machine(const std::string& machine_file, const RunChoices& choices,
                          std::span<const Program* const> programs, KernelCache& kernels, std::int64_t page_bytes,
                          std::int64_t memory_bytes);

// The same without measuring anything: what is not in the cache is assumed, so that plans can be compared at once. The
// cache knows a disk by its device: another one mounted in the same directory is not in it.
KnownMachine recall_machine(const std::string& machine_file, const RunChoices& choices, std::int64_t page_bytes);

// Bytes a second that updates with such weights and moments read and write in memory, by the largest whose time is in
// these rates; 0 where none is large enough to tell.
double known_update_bandwidth(const MachineRates& rates, DType dtype, bool packed);

// The folder of a run that has not begun is not there yet: its disk is that of the nearest folder above that is.
std::filesystem::path existing_folder(std::filesystem::path directory);

// How the spill directories are used: measured as by know_machine where there are several; a single one is recalled.
struct SpillUse {
  std::vector<double> shares;  // of the slots; empty, for evenly, when there is only one or the file has other disks
  std::int64_t depth = 0;      // requests in flight; 0: not known
};
SpillUse spill_use(const std::string& machine_file, const RunChoices& choices, std::int64_t page_bytes,
                   std::int64_t memory_bytes);

}  // namespace spillway
