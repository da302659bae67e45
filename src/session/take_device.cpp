#include "session/take_device.h"

#include <algorithm>
#include <atomic>

#include "base/bytes.h"
#include "base/error.h"
#include "cuda/cuda.h"
#include "device/memory_info.h"
#include "formats/machine_file.h"
#include "plan/update_split.h"
#include "probe/probe.h"
#include "session/known_machine.h"
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

constexpr double device_probe_seconds = 2;             // of timing ops
constexpr double update_seconds = 0.1;                 // of timing updates
constexpr std::int64_t most_update_bytes = 256 * mib;  // beyond the caches of most processors

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

UpdateBytes update_bytes(DType dtype, bool packed) {
  const double moments = packed ? 2 : 8;
  const auto weight = static_cast<double>(size_of(dtype));
  return {.state = moments + (dtype == DType::bf16 ? 2 : 0), .gradient = weight, .weight = weight};
}

double update_memory_bytes(const TrainingSetup& setup) {
  const UpdateBytes of = update_bytes(setup.choices.dtype, setup.options.moments == "8bit");
  return 2 * (of.state + of.weight) + of.gradient;
}

// Of the processor beside an accelerator, in parameters a second: as it is known, or else timed now, since a guess
// would send updates to the wrong side. A machine file is of another machine perhaps, of which nothing can be timed.
double host_update_rate(const TrainingSetup& setup) {
  const MachineRates rates = recall_machine(setup.options.machine, setup.choices, accelerator_page_bytes).rates;
  if (rates.update.host_parameters_per_second > 0) return rates.update.host_parameters_per_second;
  const bool packed = setup.options.moments == "8bit";
  double bandwidth = known_update_bandwidth(rates, setup.choices.dtype, packed);
  if (bandwidth == 0 && !setup.options.machine.empty()) bandwidth = rates.memory_bandwidth();
  if (bandwidth == 0) {
    const std::int64_t memory_bytes = std::clamp(setup.choices.budget_bytes / 4, least_update_bytes, most_update_bytes);
    bandwidth = updates_now(setup.choices.dtype, packed, setup.choices.threads, memory_bytes, update_seconds);
  }
  return bandwidth / update_memory_bytes(setup);
}

// By the closed form, where the rates are known; otherwise nothing crosses the link that need not.
double estimated_device_updates(const TrainingSetup& setup) {
  const UpdateRates& rates = setup.choices.update;
  if (rates.host_parameters_per_second == 0 || rates.device_parameters_per_second == 0) return 0;
  return balanced_device_share(rates, setup.choices.link,
                               update_bytes(setup.choices.dtype, setup.options.moments == "8bit"));
}

// A path of the device's own to the disk, which a virtual device always has.
void find_direct_path(TrainingSetup& setup) {
  if (setup.options.device_direct == "false") return;
  std::string why_not;
  if (setup.choices.accelerator) why_not = why_not_direct(*setup.choices.accelerator, setup.choices.spill_dirs);
  setup.choices.direct = why_not.empty();
  setup.choices.chooses_direct = why_not.empty() && setup.options.device_direct == "auto";
  if (setup.choices.direct) return;
  const std::string missing = fmt::format("there is no direct path from the device to the disk: {}", why_not);
  if (setup.options.device_direct == "true") throw UserError("device_direct is true, and {}; give auto", missing);
  setup.notes.push_back(missing + "; what goes there passes through the host's memory");
}

// Those of a step that updates during backward, of which two micro-batches have all: the first has no gradients to add
// to. Others differ in updates and sums of gradients.
void measure_ops_on_device(TrainingSetup& setup) {
  StepShape few = setup.shape;
  few.micro_batches = std::min<std::int64_t>(setup.shape.micro_batches, 2);
  measure_device_ops(record_training(setup.model, few).program, *setup.choices.accelerator,
                     {device_probe_seconds, setup.choices.device_bytes, false}, *setup.choices.device_rates);
}

void open_cuda(TrainingSetup& setup) {
  const double host_rate = host_update_rate(setup);  // its memory is given back before what the device takes is counted
  const std::int64_t rss_before_bytes = rss_bytes();
  setup.choices.accelerator = open_cuda_device();
  find_direct_path(setup);
  const std::int64_t rss_opened_bytes = rss_bytes();
  const std::int64_t free_opened_bytes = setup.choices.accelerator->free_bytes();
  setup.choices.device_rates = setup.choices.accelerator->measured(assumed_rates());
  const std::int64_t rss_used_bytes = rss_bytes();
  const std::int64_t free_bytes = setup.choices.accelerator->free_bytes();
  setup.choices.link = setup.choices.device_rates->link;
  const std::int64_t margin_bytes = later_bytes(free_opened_bytes - free_bytes, least_later_device_bytes);
  const std::int64_t most_bytes = free_bytes - margin_bytes;
  const bool is_given = setup.options.device_memory_bytes > 0;
  setup.choices.device_bytes = is_given ? setup.options.device_memory_bytes : most_bytes - free_bytes / 20;
  if (setup.choices.device_bytes <= 0 || setup.choices.device_bytes > most_bytes) {
    throw DoesNotFit(
        "device_memory: {} of {} are free on the CUDA device, and {} of that are the driver's and the kernels'; give "
        "at most {}, or end what else uses it",
        format_bytes(free_bytes), format_bytes(setup.choices.accelerator->memory_bytes()), format_bytes(margin_bytes),
        format_bytes(std::max<std::int64_t>(most_bytes, 0)));
  }
  if (!is_given)
    setup.notes.push_back(
        fmt::format("device_memory is {}, what is free less a margin", format_bytes(setup.choices.device_bytes)));
  setup.choices.reserved_bytes +=
      most_so_far(round_up(std::max<std::int64_t>(0, rss_used_bytes - rss_before_bytes) +
                               later_bytes(rss_used_bytes - rss_opened_bytes, least_later_host_bytes),
                           driver_unit_bytes));
  measure_ops_on_device(setup);
  double bandwidth =
      known_update_bandwidth(*setup.choices.device_rates, setup.choices.dtype, setup.options.moments == "8bit");
  if (bandwidth == 0) bandwidth = setup.choices.device_rates->memory_bandwidth();
  setup.choices.update = {host_rate, bandwidth / update_memory_bytes(setup)};
  setup.choices.splits_updates = setup.options.update_on != "device";
  setup.choices.device_updates = forced_device_updates(setup.options).value_or(estimated_device_updates(setup));
  setup.kernels = setup.fresh_kernels();
}

}  // namespace

// CUDA's, or the virtual device as the options say, or else the machine they name.
void take_device(TrainingSetup& setup) {
  if (setup.options.device == "cpu") return;
  if (setup.options.device == "cuda") return open_cuda(setup);
  const MachineRates rates = setup.options.machine.empty() ? assumed_rates() : read_machine(setup.options.machine);
  setup.choices.device_bytes =
      setup.options.device_memory_bytes > 0 ? setup.options.device_memory_bytes : rates.device_memory_bytes;
  if (setup.choices.device_bytes == 0) {
    throw UserError("device_memory is missing, and {} has no device_memory_bytes; give --device-memory, as 512MiB",
                    setup.options.machine);
  }
  setup.choices.link = rates.link;
  if (setup.options.link_up > 0) setup.choices.link.up_bytes_per_second = static_cast<double>(setup.options.link_up);
  if (setup.options.link_down > 0)
    setup.choices.link.down_bytes_per_second = static_cast<double>(setup.options.link_down);
  const auto slowest = static_cast<double>(mib);  // below it a copy could not be stopped within a moment
  if (setup.choices.link.up_bytes_per_second < slowest || setup.choices.link.down_bytes_per_second < slowest)
    throw UserError("link: a device's link carries at least 1MiB a second each way; give link_up and link_down more");
  if (setup.choices.link.copy_seconds < 0 || setup.choices.link.copy_seconds > 1)
    throw UserError("{}: copy_seconds is {}; it is from 0 to 1", setup.options.machine,
                    setup.choices.link.copy_seconds);
  if (setup.choices.link.map_seconds < 0 || setup.choices.link.map_seconds > 1)
    throw UserError("{}: map_seconds is {}; it is from 0 to 1", setup.options.machine, setup.choices.link.map_seconds);
  setup.choices.update = rates.update;
  if (setup.options.update_rate_cpu > 0)
    setup.choices.update.host_parameters_per_second = setup.options.update_rate_cpu;
  if (setup.options.update_rate_device > 0)
    setup.choices.update.device_parameters_per_second = setup.options.update_rate_device;
  for (const double rate :
       {setup.choices.update.host_parameters_per_second, setup.choices.update.device_parameters_per_second}) {
    if (rate != 0 && rate < least_update_rate)
      throw UserError("update_rate_cpu and update_rate_device: {} parameters a second are too few; give at least {}",
                      rate, least_update_rate);
  }
  setup.choices.splits_updates = setup.options.update_on != "device";
  setup.choices.device_updates = forced_device_updates(setup.options).value_or(estimated_device_updates(setup));
  find_direct_path(setup);
  if (setup.options.memory_bytes > 0) return;
  setup.choices.budget_bytes -= setup.choices.device_bytes;  // the virtual device's pages are the host's too
  if (setup.choices.budget_bytes <= 0) {
    throw DoesNotFit("device_memory: {} is more than what is free; give less",
                     format_bytes(setup.choices.device_bytes));
  }
  setup.notes.push_back(
      fmt::format("memory is {} beside the virtual device", format_bytes(setup.choices.budget_bytes)));
}

}  // namespace spillway
