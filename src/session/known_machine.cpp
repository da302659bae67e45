#include "session/known_machine.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/machine_file.h"
#include "ops/adamw/adamw.h"
#include "probe/probe.h"
#include "probe/rate_cache.h"
#include "store/spill_file.h"

namespace spillway {
namespace {

// Of looking at a machine in passing; `spillway probe` takes its time.
constexpr double op_probe_seconds = 2.0;
constexpr double processor_probe_seconds = 0.4;
constexpr double disk_probe_seconds = 0.8;
constexpr double slowdown_probe_seconds = 1.0;
constexpr std::int64_t least_probe_bytes = 16 * mib;
constexpr std::int64_t most_probe_bytes = gib;

// Whose rates they are: kept of this machine, where another disk may be mounted in a directory by now, or from a file
// of a machine that may be any, whose devices are not those of this one.
enum class RatesOf : std::uint8_t { this_machine, file };

const DiskRate* find_disk(const MachineRates& rates, RatesOf whose, const std::filesystem::path& directory,
                          std::int64_t block_bytes) {
  const std::string device = device_of(directory);
  const DiskRate* best = nullptr;
  for (const DiskRate& disk : rates.disks) {
    if (disk.block_bytes != 0 && disk.block_bytes != block_bytes) continue;
    const bool same_directory = !disk.directory.empty() && disk.directory == directory.string();
    const bool same_device = !disk.device.empty() && disk.device == device;
    if (same_directory && (same_device || whose == RatesOf::file)) return &disk;
    if (best == nullptr && same_device && whose == RatesOf::this_machine) best = &disk;
  }
  return best;
}

// What stands for a directory whose disk was not measured in blocks of this size: its device in blocks of another, or
// else what any disk is assumed to be.
DiskRate disk_not_measured(const MachineRates& rates, const std::filesystem::path& directory) {
  DiskRate assumed = assumed_rates().disks.front();
  assumed.device = device_of(directory);
  const auto known = std::find_if(rates.disks.begin(), rates.disks.end(), [&](const DiskRate& disk) {
    return !disk.device.empty() && disk.device == assumed.device;
  });
  return known == rates.disks.end() ? assumed : *known;
}

// One for each spill directory; or all of a file's, whose machine has other directories.
std::vector<DiskRate> disks_for(const MachineRates& rates, RatesOf whose, const RunChoices& choices,
                                std::int64_t page_bytes) {
  std::vector<DiskRate> disks;
  for (const std::filesystem::path& directory : choices.spill_dirs) {
    const std::filesystem::path place = existing_folder(directory);
    if (const DiskRate* const disk = find_disk(rates, whose, place, page_bytes)) {
      disks.push_back(*disk);
    } else if (whose == RatesOf::this_machine) {
      disks.push_back(disk_not_measured(rates, place));
    }
  }
  if (disks.size() == choices.spill_dirs.size()) return disks;
  return rates.disks.empty() ? assumed_rates().disks : rates.disks;
}

// Whether any had to be measured. One without room for what would be measured is left out: a run may need less of it.
bool measure_disks(const RunChoices& choices, std::int64_t page_bytes, const ProbeLimits& limits, MachineRates& rates,
                   std::vector<std::string>& notes) {
  bool fresh = false;
  for (const std::filesystem::path& directory : choices.spill_dirs) {
    const std::filesystem::path place = existing_folder(directory);
    if (find_disk(rates, RatesOf::this_machine, place, page_bytes) != nullptr) continue;
    const std::int64_t free_bytes = free_bytes_of(place);
    if (free_bytes >= 0 && free_bytes < 2 * probe_file_bytes(page_bytes, limits)) continue;
    try {
      rates.disks.push_back(measure_disk(place, page_bytes, limits));
      fresh = true;
    } catch (const Error& error) {
      notes.push_back(fmt::format("the disk cannot be measured: {}", error.what()));
    }
  }
  return fresh;
}

// What the cache knows, and what it lacks measured and added. Looks a second time, since another process may have
// measured the same: what was first in the cache counts for all. A run may need less of a disk than the measuring does,
// so one on which that fails is no reason to refuse it.
MachineRates measured_rates(const RunChoices& choices, std::span<const Program* const> programs, KernelCache& kernels,
                            std::int64_t page_bytes, std::int64_t memory_bytes, KnownMachine& known) {
  const std::filesystem::path cache = cache_directory();
  const MachineIdentity identity = identify_machine();
  ProbeLimits limits{op_probe_seconds, std::min(memory_bytes, most_probe_bytes), false};
  std::optional<MachineRates> before = load_rates(cache, identity, choices.threads);
  const bool knew_a_disk = before && !before->disks.empty();
  bool& fresh = known.measured;
  fresh = !before;
  MachineRates rates = before ? std::move(*before) : assumed_rates();
  if (!before) {
    rates.disks.clear();
    rates.identity = identity;
    rates.threads = choices.threads;
    limits.seconds = processor_probe_seconds;
    measure_processor(page_bytes, limits, rates);
  }
  limits.seconds = op_probe_seconds;
  if (choices.accelerator) programs = {};  // its kernels are not the processor's
  for (const Program* program : programs) fresh |= measure_ops(*program, kernels, page_bytes, limits, rates) > 0;
  limits.seconds = disk_probe_seconds;
  fresh |= measure_disks(choices, page_bytes, limits, rates, known.notes);
  if (!knew_a_disk && !rates.disks.empty()) {
    limits.seconds = slowdown_probe_seconds;
    try {
      measure_slowdowns(rates.disks.front(), choices.threads, limits, rates);
    } catch (const Error& error) {
      known.notes.push_back(fmt::format("the disk cannot be measured: {}", error.what()));
      rates.disks.clear();  // with one, slowdowns count as measured
    }
  }
  if (!fresh) return rates;
  SharedRates shared = share_rates(cache, rates, false);
  if (!shared.failure.empty()) known.notes.push_back(std::move(shared.failure));
  return std::move(shared.rates);
}

// What earlier runs have found out.
MachineRates kept_rates(int threads) {
  MachineRates rates = load_rates(cache_directory(), identify_machine(), threads).value_or(assumed_rates());
  rates.threads = threads;
  return rates;
}

// Its disks as the spill directories use them, and what is known of the device.
void use(RatesOf whose, const RunChoices& choices, std::int64_t page_bytes, KnownMachine& known) {
  const std::vector<DiskRate> disks = disks_for(known.rates, whose, choices, page_bytes);
  known.disk_shares = disk_shares(disks);
  known.disk = together(disks, known.disk_shares);
  if (choices.device_rates) {  // ops run there, and their rates on the processor say nothing
    const MachineRates& device = *choices.device_rates;
    known.rates.ops = device.ops;
    known.rates.bf16_flops_per_second = device.bf16_flops_per_second;
    known.rates.f32_flops_per_second = device.f32_flops_per_second;
    known.rates.memory_bytes_per_second = device.memory_bytes_per_second;
    known.rates.op_seconds = device.op_seconds;
    known.rates.compute_slowdown = 1;
    known.rates.disk_slowdown = 1;
  }
  if (choices.device_bytes == 0) return;
  known.rates.device_memory_bytes = choices.device_bytes;
  known.rates.link = choices.link;
  known.rates.update = choices.update;
}

}  // namespace

std::filesystem::path existing_folder(std::filesystem::path directory) {
  std::error_code error;
  directory = std::filesystem::absolute(directory, error);
  while (!std::filesystem::is_directory(directory, error) && directory.has_relative_path()) {
    directory = directory.parent_path();
  }
  return directory;
}

double known_update_bandwidth(const MachineRates& rates, DType dtype, bool packed) {
  constexpr double least_bytes = 4 * mib;  // less may be in caches
  const std::string packed_moment(name_of(DType::u8));
  const OpRate* largest = nullptr;
  for (const OpRate& rate : rates.ops) {
    const bool is_such = rate.what.op == adamw_spec.name && rate.what.dtype == dtype &&
                         (rate.what.shape.find(packed_moment + '[') != std::string::npos) == packed;
    if (!is_such || rate.what.bytes < least_bytes || rate.seconds <= 0) continue;
    if (largest == nullptr || rate.what.bytes > largest->what.bytes) largest = &rate;
  }
  return largest == nullptr ? 0 : largest->what.bytes / largest->seconds;
}

KnownMachine recall_machine(const std::string& machine_file, const RunChoices& choices, std::int64_t page_bytes) {
  KnownMachine known;
  known.rates = machine_file.empty() ? kept_rates(choices.threads) : read_machine(machine_file);
  if (known.rates.threads == 0) known.rates.threads = choices.threads;
  use(machine_file.empty() ? RatesOf::this_machine : RatesOf::file, choices, page_bytes, known);
  return known;
}

KnownMachine know_machine(const std::string& machine_file, const RunChoices& choices,
                          std::span<const Program* const> programs, KernelCache& kernels, std::int64_t page_bytes,
                          std::int64_t memory_bytes) {
  KnownMachine known;
  if (!machine_file.empty()) {
    known.rates = read_machine(machine_file);
    if (known.rates.threads == 0) known.rates.threads = choices.threads;
  } else if (memory_bytes < least_probe_bytes) {
    known.rates = kept_rates(choices.threads);
  } else {
    known.rates = measured_rates(choices, programs, kernels, page_bytes, memory_bytes, known);
  }
  use(machine_file.empty() ? RatesOf::this_machine : RatesOf::file, choices, page_bytes, known);
  return known;
}

SpillUse spill_use(const std::string& machine_file, const RunChoices& choices, std::int64_t page_bytes,
                   std::int64_t memory_bytes) {
  if (choices.spill_dirs.size() < 2) return {{}, recall_machine(machine_file, choices, page_bytes).disk.depth};
  KernelCache none;
  KnownMachine known = know_machine(machine_file, choices, {}, none, page_bytes, memory_bytes);
  if (known.disk_shares.size() != choices.spill_dirs.size()) known.disk_shares.clear();
  return {std::move(known.disk_shares), known.disk.depth};
}

}  // namespace spillway
