#include "device/memory_info.h"

#include <malloc.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/bytes.h"
#include "base/error.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

// The number behind "name:" or "name " at the start of a line.
std::optional<std::int64_t> field(const fs::path& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.size() <= name.size() || !line.starts_with(name)) continue;
    if (line[name.size()] != ':' && line[name.size()] != ' ') continue;
    std::istringstream rest(line.substr(name.size() + 1));
    std::int64_t value = 0;
    if (rest >> value) return value;
  }
  return std::nullopt;
}

// A file of one number; none when it is missing or says "max".
std::optional<std::int64_t> number(const fs::path& path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

std::int64_t status_bytes(std::string_view name) {
  const auto value = field("/proc/self/status", name);
  if (!value) throw DeviceError("/proc/self/status has no {}: mount /proc", name);
  return *value * kib;
}

struct GroupFiles {
  const char* limit;
  const char* usage;
  const char* reclaimable;  // in memory.stat: cached file pages, which the kernel drops first
};
constexpr GroupFiles v1_files{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr GroupFiles v2_files{"memory.max", "memory.current", "inactive_file"};

std::int64_t left_in_group(const fs::path& directory, const GroupFiles& files) {
  constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();
  const auto limit = number(directory / files.limit);
  const auto usage = number(directory / files.usage);
  if (!limit || !usage) return unlimited;
  const std::int64_t reclaimable = field(directory / "memory.stat", files.reclaimable).value_or(0);
  return std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, *usage - reclaimable));
}

// The group and all its ancestors. In a container the path may be the host's and name nothing here; the mount point is
// then the container's own group.
std::int64_t left_in_hierarchy(const fs::path& mount, const fs::path& group, const GroupFiles& files) {
  std::int64_t left = left_in_group(mount, files);
  fs::path directory = mount;
  for (const fs::path& part : group.relative_path()) {
    directory /= part;
    left = std::min(left, left_in_group(directory, files));
  }
  return left;
}

// Lines are "number:controllers:path"; v2 has no controllers.
std::int64_t left_in_groups(const fs::path& root) {
  std::int64_t left = std::numeric_limits<std::int64_t>::max();
  std::ifstream file(root / "proc/self/cgroup");
  const fs::path mounts = root / "sys/fs/cgroup";
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    if (first == std::string::npos) continue;
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const fs::path group = line.substr(second + 1);
    if (controllers == ",,") {
      left = std::min(left, left_in_hierarchy(mounts, group, v2_files));
      left = std::min(left, left_in_hierarchy(mounts / "unified", group, v2_files));
    } else if (controllers.find(",memory,") != std::string::npos) {
      left = std::min(left, left_in_hierarchy(mounts / "memory", group, v1_files));
    }
  }
  return left;
}

// What follows the colon on the first line that starts with `name`.
std::string cpuinfo_text(const fs::path& root, std::string_view name) {
  std::ifstream file(root / "proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (!line.starts_with(name) || colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

}  // namespace

std::int64_t rss_bytes() { return status_bytes("VmRSS"); }

std::int64_t peak_rss_bytes() { return status_bytes("VmHWM"); }

void bound_allocator() {
  constexpr int large_block_bytes = 128 * 1024;
  mallopt(M_MMAP_THRESHOLD, large_block_bytes);
  mallopt(M_ARENA_MAX, 1);
}

bool is_instrumented() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return false;
#endif
}

std::int64_t machine_available_bytes(const fs::path& root) {
  const auto machine = field(root / "proc/meminfo", "MemAvailable");
  if (!machine) throw DeviceError("{} has no MemAvailable: mount /proc", (root / "proc/meminfo").string());
  return *machine * kib;
}

std::int64_t available_memory_bytes(const fs::path& root) {
  return std::min(machine_available_bytes(root), left_in_groups(root));
}

ProcessorInfo processor_info(const fs::path& root) {
  constexpr std::array shown = {"avx2",        "fma",         "f16c",     "avx512f",  "avx512bw", "avx512vl",
                                "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8"};
  ProcessorInfo info;
  info.model = cpuinfo_text(root, "model name");
  if (info.model.empty()) info.model = "unknown";
  const std::string flags = fmt::format(" {} ", cpuinfo_text(root, "flags"));
  for (const char* const feature : shown) {
    if (flags.find(fmt::format(" {} ", feature)) == std::string::npos) continue;
    info.features += fmt::format("{}{}", info.features.empty() ? "" : " ", feature);
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) info.cpus = std::max(1, CPU_COUNT(&set));
  return info;
}

}  // namespace spillway
