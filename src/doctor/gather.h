// Asks the machine. Takes a quarter of a minute and some seconds for each directory.
#pragma once

#include <filesystem>
#include <functional>
#include <span>

#include "doctor/facts.h"
#include "ops/kernel.h"
#include "store/disk_calls.h"

namespace spillway {

struct GatherOptions {
  bool measure = true;               // bandwidths too
  std::filesystem::path root = "/";  // for tests: where proc/ and sys/ are
};

MachineFacts gather(std::span<const std::filesystem::path> directories, const GatherOptions& options = {});

// Of one directory; what fails is a fact, not an error.
DirectoryFacts gather_directory(const std::filesystem::path& directory, const GatherOptions& options);

// Processors' time that the container may take, from cpu.max or the quota of version 1; 0: no limit.
double processor_quota(const std::filesystem::path& root);

// Products of small whole numbers, exact in every order, and an update of AdamW, each against its reference. A sentence
// for each that differs. `make` is for tests.
using KernelFactory = std::function<std::unique_ptr<Kernel>(const KernelKey&)>;
std::vector<std::string> check_numbers(bool bf16, const KernelFactory& make = make_cpu_kernel);

// Writes some MiB into a nameless file, makes them durable, reads them back past the page cache where that can be, and
// compares. What differs is a sentence in `disk_fault`. Throws UserError or DeviceError. `calls` is for tests.
void check_disk(const std::filesystem::path& directory, DiskCalls& calls, DirectoryFacts& facts);

}  // namespace spillway
