// What a spill directory must be, and what its disk usually does.
#include <array>

#include "base/bytes.h"
#include "base/error.h"
#include "doctor/examine.h"

namespace spillway {
namespace {

constexpr std::int64_t least_free_bytes = 256 * mib;
constexpr std::int64_t little_free_bytes = 10 * gib;
constexpr double slow_flush_seconds = 2;

std::string_view name_of(DiskKind kind) {
  constexpr std::array<std::string_view, 7> names{"disk",          "NVMe disk", "solid-state disk", "virtual disk",
                                                  "rotating disk", "memory",    "network"};
  return names[static_cast<std::size_t>(kind)];
}

Finding space(const DirectoryFacts& d) {
  const std::string check = "space in " + d.path;
  if (d.free_bytes < 0)
    return {Verdict::warning, check, "the file system does not say what is free", "see that there is room"};
  const std::string what = format_bytes(d.free_bytes) + " free";
  const std::string fix = "free some space, or name another directory";
  if (d.free_bytes < least_free_bytes) return {Verdict::problem, check, what + "; it is full", fix};
  if (d.free_bytes < little_free_bytes)
    return {Verdict::warning, check, what + "; the state of a model takes some 12 to 30 bytes a parameter", fix};
  return {Verdict::ok, check, what, {}};
}

Finding direct(const DirectoryFacts& d) {
  const std::string check = "direct I/O in " + d.path;
  if (d.kind == DiskKind::memory)
    return {Verdict::warning, check, "the directory is in memory: what spills there takes the memory that it frees",
            "name a directory on a disk"};
  if (d.kind == DiskKind::network)
    return {Verdict::warning, check, "the directory is on the network, which is slow and may go away",
            "name a directory on a local disk"};
  if (!d.direct)
    return {Verdict::warning, check, "refused, so what moves goes through the page cache: " + d.why_not_direct,
            "name a directory on ext4, xfs or another file system that takes O_DIRECT"};
  return {Verdict::ok, check, d.device, {}};
}

Finding written(const DirectoryFacts& d) {
  const std::string check = "disk check in " + d.path;
  if (!d.disk_fault.empty())
    return {Verdict::problem, check, d.disk_fault,
            "do not use this disk: see the kernel's log (dmesg) and its SMART data"};
  const std::string what =
      fmt::format("what was written was read back, durable after {:.0f} ms", 1e3 * d.flush_seconds);
  if (d.flush_seconds > slow_flush_seconds)
    return {Verdict::warning, check, what + ": commits will be slow", "see what else writes there (iostat)"};
  return {Verdict::ok, check, what, {}};
}

Finding bandwidth(const DirectoryFacts& d, const DiskRate& rate) {
  const std::string check = "bandwidth of " + d.path;
  const std::string what = fmt::format("{}: read {:.2f} GB/s, write {:.2f}, both at once {:.2f}", name_of(d.kind),
                                       rate.read_bytes_per_second / 1e9, rate.write_bytes_per_second / 1e9,
                                       rate.mixed_bytes_per_second / 1e9);
  const UsualDisk usual = usual_disk(d.kind);
  if (d.kind == DiskKind::rotating)
    return {Verdict::warning, check, what + "; runs that spill will wait for it",
            "name a directory on a solid-state disk"};
  if (rate.read_bytes_per_second < tolerated_share * usual.read_bytes_per_second ||
      rate.write_bytes_per_second < tolerated_share * usual.write_bytes_per_second)
    return {Verdict::warning, check,
            fmt::format("{}; one like it usually reads {:.1f} and writes {:.1f}", what,
                        usual.read_bytes_per_second / 1e9, usual.write_bytes_per_second / 1e9),
            "see what else uses it (iostat), and what the provider limits it to"};
  return {Verdict::ok, check, what, {}};
}

}  // namespace

UsualDisk usual_disk(DiskKind kind) {
  switch (kind) {
    case DiskKind::nvme: return {2e9, 1e9};
    case DiskKind::solid_state: return {0.5e9, 0.4e9};
    case DiskKind::rotating: return {0.15e9, 0.15e9};
    case DiskKind::memory: return {};
    case DiskKind::virtual_disk:
    case DiskKind::network:
    case DiskKind::unknown: return {0.2e9, 0.1e9};
  }
  return {};
}

std::vector<Finding> examine_directory(const DirectoryFacts& d) {
  if (!d.refused.empty()) return {{Verdict::problem, "directory " + d.path, d.refused, "name another directory"}};
  std::vector<Finding> findings{space(d), direct(d), written(d)};
  if (d.rate) findings.push_back(bandwidth(d, *d.rate));
  return findings;
}

}  // namespace spillway
