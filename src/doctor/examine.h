// Judges what a machine says of itself.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/facts.h"

namespace spillway {

// A problem keeps runs from working or from being right; a warning makes them slower, or may become a problem.
enum class Verdict : std::uint8_t { ok, warning, problem };
std::string_view name_of(Verdict verdict);

struct Finding {
  Verdict verdict = Verdict::ok;
  std::string check;  // "processor", "disk /data"
  std::string what;   // one sentence, without a full stop
  std::string fix;    // what to do about it; empty when it is ok
};

// At least one finding for each check, in the order in which a reader wants them.
std::vector<Finding> examine(const MachineFacts& facts);

std::vector<Finding> examine_directory(const DirectoryFacts& directory);

// Of what is usual; below it something is wrong.
inline constexpr double tolerated_share = 0.5;

// What such hardware usually does at least.
struct UsualDisk {
  double read_bytes_per_second = 0;
  double write_bytes_per_second = 0;
};
UsualDisk usual_disk(DiskKind kind);
double usual_flops_per_thread(const ProcessorInfo& processor, bool bf16);
double usual_memory_bytes_per_second(std::int64_t threads);

}  // namespace spillway
