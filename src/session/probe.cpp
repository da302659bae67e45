#include "probe/probe.h"

#include <algorithm>
#include <optional>

#include "base/bytes.h"
#include "base/error.h"
#include "device/memory_info.h"
#include "formats/machine_file.h"
#include "ops/matmul/matmul.h"
#include "probe/rate_cache.h"
#include "session/known_machine.h"
#include "session/session.h"
#include "session/setup.h"

namespace spillway {
namespace {

// In all about half a minute, of which the ops of a model take up to half.
constexpr double op_seconds = 15;
constexpr double processor_seconds = 4;
constexpr double disk_seconds = 6;
constexpr double slowdown_seconds = 4;
constexpr std::int64_t default_block_bytes = 2 * mib;

}  // namespace

ProbeReport run_probe(const TrainOptions& options) {
  ProbeReport report;
  std::optional<TrainingSetup> setup;
  if (!options.model.empty()) {
    validate(options, TrainUse::probe);
    setup.emplace(options);
  }
  const std::filesystem::path default_dir =
      options.output_dir.empty() ? std::filesystem::current_path() : std::filesystem::path(options.output_dir);
  const RunChoices choices =
      setup && !options.spill_dir.empty()
          ? setup->choices
          : choose(options.dtype, options.threads, options.memory_bytes, options.spill_dir, default_dir, report.notes);
  const std::int64_t block_bytes = setup ? setup->planned.layout.page_bytes : default_block_bytes;

  MachineRates rates = assumed_rates();
  rates.disks.clear();
  rates.identity = identify_machine();
  rates.threads = choices.threads;
  ProbeLimits limits{processor_seconds, std::min(gib, available_memory_bytes() / 4), true};
  measure_processor(block_bytes, limits, rates);
  limits.seconds = disk_seconds / static_cast<double>(choices.spill_dirs.size());
  for (const std::filesystem::path& directory : choices.spill_dirs) {
    rates.disks.push_back(measure_disk(existing_folder(directory), block_bytes, limits));
  }
  limits.seconds = slowdown_seconds;
  measure_slowdowns(rates.disks.front(), choices.threads, limits, rates);
  if (setup) {
    limits.seconds = op_seconds / static_cast<double>(setup->planned.programs.size());
    for (const Program* program : setup->planned.programs)
      measure_ops(*program, setup->kernels, block_bytes, limits, rates);
  }
  SharedRates shared = share_rates(cache_directory(), rates, true);
  report.failure = std::move(shared.failure);
  report.rates = std::move(shared.rates);
  report.rates.disks = rates.disks;  // the cache has others too, and a run elsewhere would take all as its own
  report.json = write_machine(report.rates);
  report.cache = cache_file(cache_directory(), rates.identity, rates.threads).string();
  return report;
}

}  // namespace spillway
