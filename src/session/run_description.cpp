#include "session/run_description.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "formats/atomic_file.h"
#include "formats/file.h"
#include "formats/machine_file.h"
#include "probe/probe.h"
#include "session/known_machine.h"
#include "session/run_catalog.h"
#include "sim/op_rates.h"
#include "store/checksum.h"

namespace spillway {
namespace {

KnownMachine machine_of(const TrainingSetup& setup) {
  return recall_machine(setup.options.machine, setup.choices, setup.planned.layout.page_bytes);
}

std::vector<std::string> plan_names(const TrainingSetup& setup) {
  std::vector<std::string> names;
  for (const std::string_view name : setup.steps.names()) names.emplace_back(name);
  if (setup.evaluation) names.emplace_back("evaluate");
  for (std::size_t p = names.size(); p < setup.planned.plans.size(); ++p) {
    names.push_back(names[static_cast<std::size_t>(setup.planned.plans[p].program)] + " and commit");
  }
  return names;
}

// Nothing that matters is assumed.
bool is_known(const Program& program, const KnownMachine& machine, bool spills) {
  if (spills && machine.disk.source == RateSource::predicted) return false;
  const OpClasses ops = classes_of(program);
  return std::none_of(ops.classes.begin(), ops.classes.end(), [&](const OpClass& what) {
    return op_estimate(what, machine.rates).source == RateSource::roofline;
  });
}

void predict_steps(const TrainingSetup& setup, Catalog& catalog) {
  const KnownMachine machine = machine_of(setup);
  for (std::size_t p = 0; p < setup.planned.plans.size(); ++p) {
    const Plan& step = setup.planned.plans[p];
    if (step.program >= setup.steps.count()) continue;
    const Program& program = *setup.planned.programs[static_cast<std::size_t>(step.program)];
    const bool spills = step.traffic.read_bytes + step.traffic.write_bytes > 0;
    if (setup.options.machine.empty() && !is_known(program, machine, spills)) continue;
    const Timeline timeline = setup.simulated(step, step_rates(program, machine.rates, machine.disk));
    catalog.plans[p].predicted_seconds = timeline.seconds;
    catalog.plans[p].lower_bound_seconds = timeline.lower_bound_seconds();
  }
}

}  // namespace

RunState identity_of(const TrainingSetup& setup, const TokenStore* tokens) {
  RunState state;
  state.model = facts_of(setup.config.model);
  TrainOptions effective = setup.options;
  effective.dtype = name_of(setup.choices.dtype);
  effective.max_seq_len = setup.sequence_length;
  effective.memory_bytes = setup.choices.budget_bytes;
  effective.threads = setup.choices.threads;
  // What is exported later is read from here, wherever that is asked from.
  effective.model = plain_path(setup.options.model).string();
  for (std::vector<std::string>* const files : {&effective.data, &effective.eval_data}) {
    for (std::string& file : *files) file = plain_path(file).string();
  }
  state.options = texts_of_options(effective);
  state.data_tokens = tokens != nullptr ? tokens->count() : 0;
  state.data_hash = tokens != nullptr ? fmt::format("{:016x}", tokens->hash()) : "";
  state.numeric_key = numeric_key();
  if (setup.choices.accelerator) state.numeric_key += "; " + setup.choices.accelerator->numeric_key();
  const std::string text = dump(setup.planned.plans.front(), setup.planned.layout, setup.steps.usual().program);
  state.plan_hash = fmt::format("{:016x}", checksum_of(std::as_bytes(std::span(text))));
  return state;
}

RunSummary summary_of(const TrainingSetup& setup, std::int64_t total_steps) {
  RunSummary summary;
  summary.model = setup.options.model;
  summary.output_dir = setup.options.output_dir;
  summary.dtype = std::string(name_of(setup.choices.dtype));
  summary.parameters = setup.model.parameter_count();
  summary.total_steps = total_steps;
  summary.tokens_per_step = setup.shape.tokens() * setup.shape.micro_batches;
  summary.threads = setup.choices.threads;
  summary.budget_bytes = setup.choices.budget_bytes;
  summary.device_bytes = setup.planned.plans.front().device_pages * setup.planned.layout.page_bytes;
  const Layout& layout = setup.planned.layout;
  for (std::int32_t b = 0; b < layout.state_bundles; ++b)
    summary.state_bytes += layout.bundles[static_cast<std::size_t>(b)].bytes;
  summary.spilled_bytes = summary.state_bytes;
  const Plan& step = setup.planned.plans.front();
  std::vector<bool> in_memory(layout.bundles.size(), false);
  for (const StayId stay : step.entry.stays) in_memory[index_of(step.stays[index_of(stay)].bundle)] = true;
  for (std::size_t b = 0; b < in_memory.size(); ++b)
    summary.spilled_bytes -= in_memory[b] ? layout.bundles[b].bytes : 0;
  if (summary.spilled_bytes > 0 || step.traffic.write_bytes > 0) {
    for (const std::filesystem::path& dir : setup.choices.spill_dirs)
      summary.spill_dirs += (summary.spill_dirs.empty() ? "" : ", ") + dir.string();
  }
  return summary;
}

Catalog catalog_of(const TrainingSetup& setup) {
  const std::vector<std::string> names = plan_names(setup);
  Catalog catalog =
      catalog_of(setup.planned, setup.model.state(), std::vector<std::string_view>(names.begin(), names.end()));
  predict_steps(setup, catalog);
  return catalog;
}

void write_run_machine(const TrainingSetup& setup) {
  MachineRates rates = machine_of(setup).rates;
  if (rates.identity == MachineIdentity{}) rates.identity = identify_machine();
  rates.ops.clear();
  write_file_atomically(std::filesystem::path(setup.options.output_dir) / run_machine_name, write_machine(rates));
}

}  // namespace spillway
