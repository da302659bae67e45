#include "session/output_checks.h"

#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "formats/atomic_file.h"
#include "session/model_files.h"
#include "session/portable.h"
#include "session/run_store.h"

namespace spillway {

namespace {

// Files that are there before the run, or say what it left; some may be missing.
std::vector<std::filesystem::path> read_by(const TrainOptions& options) {
  std::vector<std::filesystem::path> files{options.machine,
                                           std::filesystem::path(options.output_dir) / store_record_name};
  files.insert(files.end(), options.data.begin(), options.data.end());
  files.insert(files.end(), options.eval_data.begin(), options.eval_data.end());
  for (const char* const name : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"})
    files.push_back(std::filesystem::path(options.model) / name);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(options.model, error)) {
    const std::string name = entry.path().filename().string();
    if (name.find(".safetensors") != std::string::npos) files.push_back(entry.path());  // and their index
  }
  return files;
}

}  // namespace

void require_trace_can_be_written(const TrainOptions& options) {
  if (options.trace.empty()) return;
  const std::filesystem::path file = std::filesystem::absolute(file_to_replace(options.trace));
  const std::filesystem::path folder = file.parent_path();
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error))
    throw UserError("trace: {} is not a folder; create it, or name another", folder.string());
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    throw UserError("trace: {} cannot be written ({}); name another folder", folder.string(),
                    std::generic_category().message(errno));
  for (const std::filesystem::path& read : read_by(options)) {
    if (std::filesystem::equivalent(read, file, error))
      throw UserError("trace: {} is a file that the run reads, {}; name another", file.string(), read.string());
  }
}

std::filesystem::path event_folder(const TrainOptions& options) {
  if (!options.logging_dir.empty()) return options.logging_dir;
  return std::filesystem::path(options.output_dir) / "runs";
}

void require_events_can_be_written(const TrainOptions& options) {
  if (options.report_to != "tensorboard") return;
  const std::filesystem::path folder = event_folder(options);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && ::access(folder.c_str(), W_OK | X_OK) != 0) error.assign(errno, std::generic_category());
  if (!error) return;
  const bool named = !options.logging_dir.empty();
  throw UserError("{}: {} cannot be written ({}); name another folder{}", named ? "logging_dir" : "output_dir",
                  folder.string(), error.message(), named ? ", or give report_to: none" : "");
}

void require_output_space(const TrainingSetup& setup) {
  std::int64_t bytes = setup.folder.tensor_bytes();
  if (setup.options.export_steps > 0)
    bytes += export_bytes({setup.model, nullptr, setup.folder, setup.files}, !setup.options.save_only_model);
  require_space(setup.options.output_dir, bytes);
}

}  // namespace spillway
