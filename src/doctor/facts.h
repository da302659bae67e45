// What a machine says of itself, as plain data: gathered once (gather.h), judged by examine.h. Tests write it by hand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/memory_info.h"
#include "machine/rates.h"

namespace spillway {

enum class DiskKind : std::uint8_t { unknown, nvme, solid_state, virtual_disk, rotating, memory, network };

struct DirectoryFacts {
  std::string path;
  std::string refused;     // why nothing can be written there: a sentence with the fix; empty: it can
  std::string disk_fault;  // what the disk check found; empty: what was written was read back
  DiskKind kind = DiskKind::unknown;
  std::string device;            // "ext4 on 254:1"
  std::int64_t free_bytes = -1;  // -1: the file system does not say
  bool direct = true;
  std::string why_not_direct;
  double flush_seconds = 0;  // to make some MiB durable
  std::optional<DiskRate> rate;
};

struct MachineFacts {
  ProcessorInfo processor;
  bool bf16_products = false;
  std::string products;              // the libraries and instruction sets that multiply
  double processor_quota = 0;        // of a container, in processors; 0: none
  std::int64_t memory_bytes = 0;     // of the machine
  std::int64_t unlimited_bytes = 0;  // free, limits of control groups aside
  std::int64_t available_bytes = 0;  // free for this process
  std::string huge_pages;            // "always", "madvise" or "never"; empty: the kernel does not say
  std::int64_t most_mappings = 0;    // vm.max_map_count; 0: not said
  std::int64_t most_open_files = 0;  // of this process
  std::int64_t most_open_files_allowed = 0;
  std::int64_t most_file_bytes = -1;        // -1: no limit
  std::int64_t address_space_bytes = -1;    // -1: no limit
  std::string io_engine;                    // "io_uring, …", or which other and why
  std::int64_t wall_seconds = 0;            // since 1970
  double clock_read_seconds = 0;            // to read the clock of events
  bool clock_goes_on = true;                // it never went back
  std::string clock_source;                 // of the kernel
  std::vector<std::string> accelerators;    // device files of some
  std::vector<std::string> numeric_faults;  // of products and of the update; empty: they compute what they should
  std::optional<MachineRates> rates;
  std::vector<DirectoryFacts> directories;
};

}  // namespace spillway
