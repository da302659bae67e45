#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "device/memory_info.h"
#include "ops/dispatch.h"
#include "ops/matmul/matmul.h"
#include "probe/probe.h"

namespace spillway {
namespace {

std::string name_of_file_system(long type) {
  switch (type) {
    case 0xEF53: return "ext4";
    case 0x58465342: return "xfs";
    case 0x9123683E: return "btrfs";
    case 0x01021994: return "tmpfs";
    case 0x794C7630: return "overlay";
    case 0x6969: return "nfs";
    default: return fmt::format("{:#x}", type);
  }
}

// Size and time of the file that holds this code, program or library: other kernels take other times.
std::string describe_build() {
  Dl_info info{};
  struct stat file {};
  if (dladdr(reinterpret_cast<const void*>(&identify_machine), &info) == 0 || info.dli_fname == nullptr) return "";
  if (stat(info.dli_fname, &file) != 0 && stat("/proc/self/exe", &file) != 0) return "";
  return fmt::format("{}-{}", file.st_size, file.st_mtim.tv_sec);
}

// Processors of two makers never share rates, but what the environment says may differ.
std::string describe_kernels() {
  const LinesAhead ahead = lines_ahead();
  return fmt::format(" kernels {} prefetch {} {} {}", name_of(best_isa()), ahead.update_bf16, ahead.update_f32,
                     ahead.sum_squares);
}

// "254:0": of a partition, its whole disk, where the system says which that is.
std::string disk_below(dev_t device, const std::filesystem::path& root) {
  std::string number = fmt::format("{}:{}", major(device), minor(device));
  std::error_code error;
  const std::filesystem::path known = std::filesystem::canonical(root / "sys/dev/block" / number, error);
  if (error || !std::filesystem::exists(known / "partition", error)) return number;
  std::string whole;
  std::ifstream(known.parent_path() / "dev") >> whole;
  return whole.empty() ? number : whole;
}

}  // namespace

MachineIdentity identify_machine() {
  MachineIdentity identity;
  const ProcessorInfo processor = processor_info();
  identity.processor = processor.model + "; " + processor.features;
  identity.cpus = processor.cpus;
  identity.memory_bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  utsname system{};
  if (uname(&system) == 0) identity.kernel = system.release;
  identity.libraries = matmul_numeric_key();
  identity.build = describe_build() + describe_kernels();
  return identity;
}

std::string device_of(const std::filesystem::path& directory, const std::filesystem::path& root) {
  struct stat info {};
  struct statfs system {};
  if (stat(directory.c_str(), &info) != 0 || statfs(directory.c_str(), &system) != 0) return "";
  return fmt::format("{} on {}", name_of_file_system(system.f_type), disk_below(info.st_dev, root));
}

}  // namespace spillway
