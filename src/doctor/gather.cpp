#include "doctor/gather.h"

#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <sstream>

#include "base/bytes.h"
#include "base/error.h"
#include "base/steady_clock.h"
#include "ops/matmul/matmul.h"
#include "probe/probe.h"
#include "store/io.h"
#include "store/spill_file.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr double processor_seconds = 2;
constexpr double disk_seconds = 3;
constexpr std::int64_t block_bytes = 2 * mib;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::int64_t number_in(const fs::path& path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  return file >> value ? value : 0;
}

// "always [madvise] never" is madvise.
std::string chosen_word(const std::string& line) {
  const std::size_t begin = line.find('[');
  const std::size_t end = line.find(']');
  return begin == line.npos || end == line.npos ? "" : line.substr(begin + 1, end - begin - 1);
}

std::int64_t limit_of(decltype(RLIMIT_NOFILE) resource, bool hard = false) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0) return -1;
  const rlim_t value = hard ? limit.rlim_max : limit.rlim_cur;
  return value == RLIM_INFINITY ? -1 : static_cast<std::int64_t>(value);
}

void gather_limits(MachineFacts& facts) {
  constexpr std::int64_t no_limit = std::int64_t{1} << 30;
  const auto files = [](bool hard) {
    const std::int64_t limit = limit_of(RLIMIT_NOFILE, hard);
    return limit < 0 ? no_limit : limit;
  };
  facts.most_open_files = files(false);
  facts.most_open_files_allowed = files(true);
  facts.most_file_bytes = limit_of(RLIMIT_FSIZE);
  facts.address_space_bytes = limit_of(RLIMIT_AS);
}

void gather_clock(const fs::path& root, MachineFacts& facts) {
  constexpr int readings = 20000;
  const auto start = SteadyClock::now();
  auto last = start;
  for (int i = 0; i < readings; ++i) {
    const auto now = SteadyClock::now();
    if (now < last) facts.clock_goes_on = false;
    last = now;
  }
  facts.clock_read_seconds = std::chrono::duration<double>(last - start).count() / readings;
  facts.wall_seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  facts.clock_source = first_line(root / "sys/devices/system/clocksource/clocksource0/current_clocksource");
}

void gather_accelerators(const fs::path& root, MachineFacts& facts) {
  for (const char* const device : {"dev/nvidia0", "dev/kfd", "dev/accel/accel0"}) {
    std::error_code error;
    if (fs::exists(root / device, error)) facts.accelerators.push_back((root / device).string());
  }
}

DiskKind kind_of(const fs::path& directory, const fs::path& root) {
  struct statfs system {};
  struct stat info {};
  if (statfs(directory.c_str(), &system) != 0 || stat(directory.c_str(), &info) != 0) return DiskKind::unknown;
  constexpr long ramfs_type = 0x858458F6;
  constexpr long cifs_type = 0xFF534D42;
  constexpr long smb2_type = 0xFE534D42;
  if (system.f_type == TMPFS_MAGIC || system.f_type == ramfs_type) return DiskKind::memory;
  if (system.f_type == NFS_SUPER_MAGIC || system.f_type == cifs_type || system.f_type == smb2_type)
    return DiskKind::network;
  std::error_code error;
  const fs::path link = root / fmt::format("sys/dev/block/{}:{}", major(info.st_dev), minor(info.st_dev));
  fs::path device = fs::canonical(link, error);
  if (error) return DiskKind::unknown;
  if (!fs::exists(device / "queue", error)) device = device.parent_path();  // a partition's disk
  if (device.string().find("/nvme") != std::string::npos) return DiskKind::nvme;
  const std::string name = device.filename().string();
  if (name.starts_with("vd") || name.starts_with("xvd")) return DiskKind::virtual_disk;
  const std::string rotates = first_line(device / "queue/rotational");
  if (rotates.empty()) return DiskKind::unknown;
  return rotates == "1" ? DiskKind::rotating : DiskKind::solid_state;
}

}  // namespace

double processor_quota(const fs::path& root) {
  double quota = 0;
  double period = 0;
  std::istringstream v2(first_line(root / "sys/fs/cgroup/cpu.max"));  // "max 100000" or "150000 100000"
  if (v2 >> quota >> period && quota > 0 && period > 0) return quota / period;
  quota = static_cast<double>(number_in(root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us"));
  period = static_cast<double>(number_in(root / "sys/fs/cgroup/cpu/cpu.cfs_period_us"));
  return quota > 0 && period > 0 ? quota / period : 0;
}

DirectoryFacts gather_directory(const fs::path& directory, const GatherOptions& options) {
  DirectoryFacts facts;
  facts.path = directory.string();
  try {
    check_spill_directory(directory);
    facts.device = device_of(directory);
    facts.kind = kind_of(directory, options.root);
    facts.free_bytes = free_bytes_of(directory);
    check_disk(directory, system_disk_calls(), facts);
    ProbeLimits limits{disk_seconds, std::min(gib, available_memory_bytes() / 4), true};
    if (options.measure && facts.disk_fault.empty()) facts.rate = measure_disk(directory, block_bytes, limits);
  } catch (const Error& error) {
    facts.refused = error.what();
  }
  return facts;
}

MachineFacts gather(std::span<const fs::path> directories, const GatherOptions& options) {
  MachineFacts facts;
  facts.processor = processor_info(options.root);
  facts.bf16_products = matmul_has_bf16();
  facts.products = matmul_numeric_key();
  facts.processor_quota = processor_quota(options.root);
  facts.memory_bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  facts.unlimited_bytes = machine_available_bytes(options.root);
  facts.available_bytes = std::min(facts.unlimited_bytes, available_memory_bytes(options.root));  // read a moment later
  facts.huge_pages = chosen_word(first_line(options.root / "sys/kernel/mm/transparent_hugepage/enabled"));
  facts.most_mappings = number_in(options.root / "proc/sys/vm/max_map_count");
  gather_limits(facts);
  facts.io_engine = make_io_engine({})->describe();
  gather_clock(options.root, facts);
  gather_accelerators(options.root, facts);
  facts.numeric_faults = check_numbers(facts.bf16_products);
  if (options.measure) {
    MachineRates rates = assumed_rates();
    rates.threads = facts.processor.cpus;
    measure_processor(block_bytes, {processor_seconds, std::min(gib, facts.available_bytes / 4), true}, rates);
    facts.rates = rates;
  }
  for (const fs::path& directory : directories) facts.directories.push_back(gather_directory(directory, options));
  return facts;
}

}  // namespace spillway
