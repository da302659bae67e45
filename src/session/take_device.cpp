// The device of a training run: CUDA's, which is opened and measured, or a virtual one.
#include <algorithm>
#include <atomic>

#include "base/bytes.h"
#include "base/error.h"
#include "cuda/cuda.h"
#include "device/memory_info.h"
#include "formats/machine_file.h"
#include "probe/probe.h"
#include "session/known_machine.h"
#include "session/setup.h"
#include "store/spill_file.h"

namespace spillway {
namespace {

// Below it an update could not be stopped within some seconds.
constexpr double least_update_rate = 1e5;

// What more is taken once a step runs: code that is loaded when it is first used, and on the device the kernels'
// scratch and the inputs. Nobody tells it before, but what the first products and copies take is measured: what comes
// later is counted as twice that, and as no less than this.
constexpr std::int64_t least_later_host_bytes = 64 * mib;
constexpr std::int64_t least_later_device_bytes = 512 * mib;

std::int64_t later_bytes(std::int64_t first_bytes, std::int64_t least_bytes) {
  return std::max(2 * first_bytes, least_bytes);
}

constexpr double device_probe_seconds = 2;  // of timing ops

// So that a plan and the run after it, which measure for themselves, count alike.
constexpr std::int64_t driver_unit_bytes = 32 * mib;

// The driver keeps what it took for as long as the process lives: a run after another finds it resident, and it is no
// less than what the one before counted.
std::int64_t most_so_far(std::int64_t bytes) {
  static std::atomic<std::int64_t> most_bytes{0};
  std::int64_t before = most_bytes.load();
  while (before < bytes && !most_bytes.compare_exchange_weak(before, bytes)) {
  }
  return std::max(before, bytes);
}

// A file is tried in each directory, or above it where it is still to be made.
std::string why_not_direct(Accelerator& device, std::span<const std::filesystem::path> directories) {
  for (std::filesystem::path directory : directories) {
    directory = absolute(directory);
    while (!is_directory(directory) && directory.has_relative_path()) directory = directory.parent_path();
    try {
      SpillFile file = SpillFile::make_unnamed(directory, mib);
      file.turn_direct();
      if (std::string why = device.why_not_direct(file.descriptor()); !why.empty()) return why;
    } catch (const Error& error) {
      return error.what();
    }
  }
  return "";
}

}  // namespace

void TrainingSetup::open_cuda() {
  const double host_rate = host_update_rate();  // its memory is given back before what the device takes is counted
  const std::int64_t rss_before_bytes = rss_bytes();
  choices.accelerator = open_cuda_device();
  choose_direct();
  const std::int64_t rss_opened_bytes = rss_bytes();
  const std::int64_t free_opened_bytes = choices.accelerator->free_bytes();
  choices.device_rates = choices.accelerator->measured(assumed_rates());
  const std::int64_t rss_used_bytes = rss_bytes();
  const std::int64_t free_bytes = choices.accelerator->free_bytes();
  choices.link = choices.device_rates->link;
  const std::int64_t margin_bytes = later_bytes(free_opened_bytes - free_bytes, least_later_device_bytes);
  const std::int64_t most_bytes = free_bytes - margin_bytes;
  const bool is_given = options.device_memory_bytes > 0;
  choices.device_bytes = is_given ? options.device_memory_bytes : most_bytes - free_bytes / 20;
  if (choices.device_bytes <= 0 || choices.device_bytes > most_bytes) {
    throw DoesNotFit(
        "device_memory: {} of {} are free on the CUDA device, and {} of that are the driver's and the kernels'; give "
        "at most {}, or end what else uses it",
        format_bytes(free_bytes), format_bytes(choices.accelerator->memory_bytes()), format_bytes(margin_bytes),
        format_bytes(std::max<std::int64_t>(most_bytes, 0)));
  }
  if (!is_given)
    notes.push_back(fmt::format("device_memory is {}, what is free less a margin", format_bytes(choices.device_bytes)));
  choices.reserved_bytes +=
      most_so_far(round_up(std::max<std::int64_t>(0, rss_used_bytes - rss_before_bytes) +
                               later_bytes(rss_used_bytes - rss_opened_bytes, least_later_host_bytes),
                           driver_unit_bytes));
  measure_ops_on_device();
  double bandwidth = known_update_bandwidth(*choices.device_rates, choices.dtype, options.moments == "8bit");
  if (bandwidth == 0) bandwidth = choices.device_rates->memory_bandwidth();
  choices.update = {host_rate, bandwidth / update_memory_bytes()};
  choices.splits_updates = options.update_on != "device";
  choices.device_updates = forced_device_updates(options).value_or(estimated_device_updates());
  kernels = fresh_kernels();
}

// Those of a step that updates during backward, of which two micro-batches have all: the first has no gradients to add
// to. Others differ in updates and sums of gradients.
void TrainingSetup::measure_ops_on_device() {
  StepShape few = shape;
  few.micro_batches = std::min<std::int64_t>(shape.micro_batches, 2);
  measure_device_ops(record_training(model, few).program, *choices.accelerator,
                     {device_probe_seconds, choices.device_bytes, false}, *choices.device_rates);
}

// By a path of the device's own. A virtual device has one where it is asked for.
void TrainingSetup::choose_direct() {
  choices.direct = options.device_direct == "true" && !choices.accelerator;
  if (!choices.accelerator || options.device_direct == "false") return;
  const std::string why_not = why_not_direct(*choices.accelerator, choices.spill_dirs);
  choices.direct = why_not.empty();
  if (choices.direct) return;
  const std::string missing = fmt::format("there is no direct path from the device to the disk: {}", why_not);
  if (options.device_direct == "true") throw UserError("device_direct is true, and {}; give auto", missing);
  notes.push_back(missing + "; what goes there passes through the host's memory");
}

KernelCache TrainingSetup::fresh_kernels() const {
  if (!choices.accelerator) return KernelCache();
  return KernelCache([device = choices.accelerator](const KernelKey& key) { return device->make_kernel(key); });
}

// CUDA's, or the virtual device as the options say, or else the machine they name.
void TrainingSetup::take_device() {
  if (options.device == "cpu") return;
  if (options.device == "cuda") return open_cuda();
  const MachineRates rates = options.machine.empty() ? assumed_rates() : read_machine(options.machine);
  choices.device_bytes = options.device_memory_bytes > 0 ? options.device_memory_bytes : rates.device_memory_bytes;
  if (choices.device_bytes == 0) {
    throw UserError("device_memory is missing, and {} has no device_memory_bytes; give --device-memory, as 512MiB",
                    options.machine);
  }
  choices.link = rates.link;
  if (options.link_up > 0) choices.link.up_bytes_per_second = static_cast<double>(options.link_up);
  if (options.link_down > 0) choices.link.down_bytes_per_second = static_cast<double>(options.link_down);
  const auto slowest = static_cast<double>(mib);  // below it a copy could not be stopped within a moment
  if (choices.link.up_bytes_per_second < slowest || choices.link.down_bytes_per_second < slowest)
    throw UserError("link: a device's link carries at least 1MiB a second each way; give link_up and link_down more");
  if (choices.link.copy_seconds < 0 || choices.link.copy_seconds > 1)
    throw UserError("{}: copy_seconds is {}; it is from 0 to 1", options.machine, choices.link.copy_seconds);
  if (choices.link.map_seconds < 0 || choices.link.map_seconds > 1)
    throw UserError("{}: map_seconds is {}; it is from 0 to 1", options.machine, choices.link.map_seconds);
  choices.update = rates.update;
  if (options.update_rate_cpu > 0) choices.update.host_parameters_per_second = options.update_rate_cpu;
  if (options.update_rate_device > 0) choices.update.device_parameters_per_second = options.update_rate_device;
  for (const double rate : {choices.update.host_parameters_per_second, choices.update.device_parameters_per_second}) {
    if (rate != 0 && rate < least_update_rate)
      throw UserError("update_rate_cpu and update_rate_device: {} parameters a second are too few; give at least {}",
                      rate, least_update_rate);
  }
  choices.splits_updates = options.update_on != "device";
  choices.device_updates = forced_device_updates(options).value_or(estimated_device_updates());
  choose_direct();
  if (options.memory_bytes > 0) return;
  choices.budget_bytes -= choices.device_bytes;  // the virtual device's pages are the host's too
  if (choices.budget_bytes <= 0) {
    throw DoesNotFit("device_memory: {} is more than what is free; give less", format_bytes(choices.device_bytes));
  }
  notes.push_back(fmt::format("memory is {} beside the virtual device", format_bytes(choices.budget_bytes)));
}

}  // namespace spillway
