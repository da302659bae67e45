#include "session/inference.h"

namespace spillway {

InferenceModel::InferenceModel(const InferenceChoices& given)
    : config(read_hf_config(std::filesystem::path(given.model) / "config.json")),
      folder(given.model),
      files(folder, config.model),
      choices(choose(given.dtype, given.threads, given.memory_bytes, given.spill_dir,
                     std::filesystem::temp_directory_path(), notes)),
      model(config.model, choices.dtype, Purpose::inference, {}) {
  for (const std::string& note : config.notes) notes.push_back(note);
}

void InferenceModel::open(std::vector<const Program*> programs) {
  planned = plan_programs(std::move(programs), model.state(), choices, kernels, config.model.vocab_size, 0);
  require_fit(planned, "");
  check_fixed_memory(planned);
  ExecutorOptions execution;
  execution.threads = choices.threads;
  execution.spill_dirs = choices.spill_dirs;
  executor.emplace(planned.layout, planned.programs, planned.plans, kernels, execution);
  executor->settle(planned.plans.front(), planned.plans.front().entry);
  load_weights(*executor, planned.layout, model, folder, files);
}

}  // namespace spillway
