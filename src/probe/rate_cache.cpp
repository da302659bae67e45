#include "probe/rate_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "formats/atomic_file.h"
#include "formats/machine_file.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

// Held by whoever adds to the file.
class Lock {
 public:
  explicit Lock(const fs::path& path) : descriptor_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (descriptor_ >= 0 && flock(descriptor_, LOCK_EX) != 0) {
      close(descriptor_);
      descriptor_ = -1;
    }
  }
  ~Lock() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  bool held() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

bool same_disk(const DiskRate& a, const DiskRate& b) { return a.device == b.device && a.block_bytes == b.block_bytes; }

// `first` with what only `second` has. Slowdowns are measured with the first disk, and come with it.
MachineRates joined(MachineRates first, const MachineRates& second) {
  for (const OpRate& op : second.ops) {
    const auto known = [&](const OpRate& other) { return other.threads == op.threads && other.what.same_as(op.what); };
    if (std::none_of(first.ops.begin(), first.ops.end(), known)) first.ops.push_back(op);
  }
  if (first.disks.empty()) {
    first.compute_slowdown = second.compute_slowdown;
    first.disk_slowdown = second.disk_slowdown;
  }
  for (const DiskRate& disk : second.disks) {
    const auto known = [&](const DiskRate& other) { return same_disk(other, disk); };
    if (std::none_of(first.disks.begin(), first.disks.end(), known)) first.disks.push_back(disk);
  }
  return first;
}

}  // namespace

fs::path cache_directory() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return fs::path(cache) / "spillway";
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return fs::path(home) / ".cache" / "spillway";
  return {};
}

fs::path cache_file(const fs::path& directory, const MachineIdentity& identity, std::int64_t threads) {
  return directory / fmt::format("machine-{}-{}.json", fingerprint(identity), threads);
}

std::optional<MachineRates> load_rates(const fs::path& directory, const MachineIdentity& identity,
                                       std::int64_t threads) {
  const fs::path path = cache_file(directory, identity, threads);
  std::error_code error;
  if (directory.empty() || !fs::is_regular_file(path, error)) return std::nullopt;
  try {
    MachineRates rates = read_machine(path);
    if (rates.identity != identity || rates.threads != threads) return std::nullopt;
    return rates;
  } catch (const Error&) {  // a damaged cache is as good as none: it is measured anew and replaced
    return std::nullopt;
  }
}

SharedRates share_rates(const fs::path& directory, const MachineRates& rates, bool replace) {
  const auto not_kept = [&](std::string_view why) {
    return SharedRates{rates, fmt::format("the machine's rates cannot be kept for later: {}", why)};
  };
  if (directory.empty()) return not_kept("neither XDG_CACHE_HOME nor HOME names a folder");
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return not_kept(fmt::format("{}: {}", directory.string(), error.message()));
  const Lock lock(directory / "lock");
  if (!lock.held()) return not_kept(fmt::format("{}: {}", (directory / "lock").string(), std::strerror(errno)));
  MachineRates all = rates;
  if (const std::optional<MachineRates> known = load_rates(directory, rates.identity, rates.threads)) {
    all = replace ? joined(rates, *known) : joined(*known, rates);
  }
  try {
    write_file_atomically(cache_file(directory, rates.identity, rates.threads), write_machine(all));
  } catch (const Error& failure) {  // which costs time, not the run
    return not_kept(failure.what());
  }
  return {all, {}};
}

}  // namespace spillway
