// A model folder opened for evaluation or generation: weights alone, under a budget of their own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "executor/kernel_table.h"
#include "formats/hf_config.h"
#include "formats/safetensors.h"
#include "model/programs.h"
#include "session/model_files.h"
#include "session/planned_programs.h"
#include "session/run_choices.h"

namespace spillway {

struct InferenceChoices {
  std::string model;
  std::string dtype;
  std::int64_t threads = 0;
  std::int64_t memory_bytes = 0;
  std::vector<std::string> spill_dir;
};

class InferenceModel {
 public:
  // Reads config and headers. Throws UserError.
  explicit InferenceModel(const InferenceChoices& given);

  // Plans the Programs, recorded from `model` meanwhile, and loads the weights. Throws DoesNotFit.
  void open(std::vector<const Program*> programs);
  RunReport run(std::int32_t program) { return executor->run(planned.plans[static_cast<std::size_t>(program)]); }

  std::vector<std::string> notes;
  HfConfig config;
  ModelFolder folder;
  ModelFiles files;
  RunChoices choices;
  Model model;
  KernelCache kernels;
  PlannedPrograms planned;
  std::optional<Executor> executor;
};

}  // namespace spillway
