#include <filesystem>
#include <optional>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/machine_file.h"
#include "session/data.h"
#include "session/known_machine.h"
#include "session/output_checks.h"
#include "session/prediction.h"
#include "session/session.h"
#include "session/setup.h"
#include "session/training_data.h"

namespace spillway {
namespace {

// State by kind: what it takes, and what of it is in memory between steps.
std::vector<PlacementRow> placement_of(const TrainingSetup& setup) {
  const Plan& plan = setup.planned.plans.front();
  const Layout& layout = setup.planned.layout;
  std::vector<bool> resident(layout.bundles.size(), false);
  for (const StayId stay : plan.entry.stays) resident[index_of(plan.stays[index_of(stay)].bundle)] = true;
  std::vector<PlacementRow> rows{{"weights", 0, 0, 0}, {"optimizer", 0, 0, 0}, {"activations and gradients", 0, 0, 0}};
  const State& state = setup.model.state();
  for (std::size_t p = 0; p < state.pieces().size(); ++p) {
    const auto id = static_cast<PieceId>(p);
    if (!state.tensor(state.piece(id).tensor).committed) continue;  // gradients on their way to an update
    PlacementRow& row = rows[state.tensor(state.piece(id).tensor).trainable ? 0 : 1];
    const std::int64_t bytes = state.bytes_of(id);
    row.bytes += bytes;
    (resident[index_of(layout.piece_places[p].bundle)] ? row.memory_bytes : row.disk_bytes) += bytes;
  }
  const ProgramLayout& lives = layout.programs.front();
  std::int64_t alive = 0;
  for (std::size_t b = 0; b < lives.dead_on_entry.size(); ++b) {  // gradients that the step before has kept
    alive += layout.bundles[b].committed || lives.dead_on_entry[b] ? 0 : layout.bundles[b].bytes;
  }
  for (const auto& uses : lives.uses) {
    for (const Use& use : uses) alive += use.creates ? layout.bundles[index_of(use.bundle)].bytes : 0;
    rows[2].bytes = std::max(rows[2].bytes, alive);
    for (const Use& use : uses) alive -= use.ends ? layout.bundles[index_of(use.bundle)].bytes : 0;
  }
  rows[2].disk_bytes = std::min(plan.local_slots * layout.page_bytes, rows[2].bytes);  // slots have pages' ends too
  rows[2].memory_bytes = rows[2].bytes - rows[2].disk_bytes;
  return rows;
}

// Of this machine, which a run would refuse.
void say_what_is_missing(const TrainOptions& options, std::vector<std::string>& notes) {
  if (!options.machine.empty()) return;
  for (const std::string& directory : options.spill_dir) {
    std::error_code error;
    if (std::filesystem::is_directory(directory, error)) continue;
    notes.push_back(fmt::format("spill_dir: '{}' is no directory; the disk below '{}' is taken for its own", directory,
                                existing_folder(directory).string()));
  }
}

// Data that a run would refuse are worth a note only: the step is planned all the same.
void count_steps(const TrainingSetup& setup, PlanReport& report) {
  const TrainOptions& options = setup.options;
  report.total_steps = options.max_steps;
  if (options.max_steps >= 0) return;
  report.total_steps = 0;
  try {
    const TokenEstimate tokens = estimate_tokens(options.data, options.model, setup.config.model.vocab_size);
    const std::int64_t windows = Windows::count_in(tokens.ids, setup.sequence_length);
    if (windows < 1) throw UserError("{} tokens are too few for a window of {}", tokens.ids, setup.sequence_length);
    report.total_steps = total_steps_of(options, windows, setup.shape.sequences * setup.shape.micro_batches);
    report.total_steps_estimated = !tokens.exact;
  } catch (const Error& error) {
    report.notes.push_back(fmt::format("how many steps num_train_epochs makes is not known: {}", error.what()));
  }
}

// A machine file says what `auto` stands for, where it says it.
TrainOptions on_its_machine(TrainOptions options, std::vector<std::string>& notes) {
  if (options.machine.empty()) return options;
  const MachineRates rates = read_machine(options.machine);
  if (options.threads > 0 && rates.threads > 0 && options.threads != rates.threads) {
    notes.push_back(fmt::format("{} has rates of {} threads, and threads is {}: times are those of {}", options.machine,
                                rates.threads, options.threads, rates.threads));
  }
  if (options.memory_bytes == 0 && rates.memory_bytes > 0) {
    options.memory_bytes = budget_within(rates.memory_bytes);
  }
  if (options.threads == 0) options.threads = rates.threads;
  return options;
}

// As the slots are shared out.
std::vector<DiskRow> disks_of(const TrainingSetup& setup, const KnownMachine& machine) {
  const std::vector<std::filesystem::path>& directories = setup.choices.spill_dirs;
  std::vector<DiskRow> rows;
  if (directories.size() < 2 || machine.disk_shares.size() != directories.size()) return rows;
  const Traffic& traffic = setup.planned.plans.front().traffic;
  for (std::size_t d = 0; d < directories.size(); ++d) {
    const auto part_of = [&](std::int64_t bytes) {
      return static_cast<std::int64_t>(machine.disk_shares[d] * static_cast<double>(bytes));
    };
    rows.push_back({directories[d].string(), part_of(traffic.read_bytes), part_of(traffic.write_bytes)});
  }
  return rows;
}

KnownMachine machine_for(TrainingSetup& setup) {
  const PlannedPrograms& planned = setup.planned;
  return know_machine(setup.options.machine, setup.choices, planned.programs, setup.kernels, planned.layout.page_bytes,
                      planned.probe_bytes());
}

}  // namespace

PlanReport run_plan(const TrainOptions& options, bool predict) {
  validate(options, TrainUse::plan);
  if (predict) require_trace_can_be_written(options);
  PlanReport report;
  const TrainOptions wanted = on_its_machine(options, report.notes);
  say_what_is_missing(options, report.notes);
  std::optional<TrainingSetup> made(wanted);
  std::optional<KnownMachine> machine;
  if (predict && made->planned.fits()) {
    machine = machine_for(*made);
    report.notes.insert(report.notes.end(), machine->notes.begin(), machine->notes.end());
    if (machine->measured) made.emplace(wanted);  // the run will choose by what is known now
  }
  const TrainingSetup& setup = *made;
  const PlannedPrograms& planned = setup.planned;
  report.fits = planned.fits();
  report.budget_bytes = setup.choices.budget_bytes;
  report.min_memory_bytes = planned.min_memory_bytes;
  report.in_memory_bytes = planned.in_memory_bytes;
  report.device_memory_bytes = setup.choices.device_bytes;
  report.min_device_memory_bytes = planned.min_device_bytes;
  report.parameters = setup.model.parameter_count();
  report.tokens_per_step = setup.shape.tokens() * setup.shape.micro_batches;
  count_steps(setup, report);
  report.dtype = std::string(name_of(setup.choices.dtype));
  report.notes.insert(report.notes.end(), setup.notes.begin(), setup.notes.end());
  if (planned.fits()) {
    report.peak_memory_bytes = planned.peak_memory_bytes();
    report.peak_device_memory_bytes = planned.plans.front().peak_device_pages * planned.layout.page_bytes;
    report.link_up_bytes_per_step = planned.plans.front().up_bytes;
    report.link_down_bytes_per_step = planned.plans.front().down_bytes;
    report.device_direct = setup.choices.direct;
    report.direct_read_bytes_per_step = planned.plans.front().direct.read_bytes;
    report.direct_write_bytes_per_step = planned.plans.front().direct.write_bytes;
    if (planned.has_device()) {
      const UpdateSides sides = update_sides(planned.plans.front(), *planned.programs.front());
      report.updates_on_host = sides.host_ops;
      report.updates_on_device = sides.other_ops;
      report.parameters_on_host = sides.host_parameters;
      report.parameters_on_device = sides.other_parameters;
    }
    report.disk_read_bytes_per_step = planned.plans.front().traffic.read_bytes;
    report.disk_write_bytes_per_step = planned.plans.front().traffic.write_bytes;
    report.disk_state_write_bytes_per_step = disk_writes(planned.plans.front(), planned.layout).state_bytes;
    report.work = describe(setup.work.choice);
    if (setup.options.max_grad_norm > 0) report.clip = name_of(setup.steps.usual().way);
    report.placement = placement_of(setup);
    report.links = links_of(setup);
    report.memory = memory_of(setup);
    if (machine) {
      report.prediction = predict_step(setup, *machine);
      if (std::string note = note_on_deferring(setup, *machine); !note.empty()) report.notes.push_back(std::move(note));
      report.disks = disks_of(setup, *machine);
    }
  } else {
    report.advice = refusal(planned, setup.advice());
  }
  return report;
}

}  // namespace spillway
