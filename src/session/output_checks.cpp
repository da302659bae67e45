#include "session/output_checks.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/error.h"
#include "formats/atomic_file.h"
#include "session/model_files.h"
#include "session/portable.h"

namespace spillway {

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
  for (const auto* paths : {&options.data, &options.eval_data}) {
    for (const std::string& path : *paths) {
      if (std::filesystem::equivalent(path, file, error))
        throw UserError("trace: {} is a file of data; name another", file.string());
    }
  }
  if (std::filesystem::exists(file, error) && std::filesystem::equivalent(folder, options.model, error))
    throw UserError("trace: {} is a file of the model; name another", file.string());
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
  if (error)
    throw UserError("logging_dir: {} cannot be written ({}); name another folder, or give report_to: none",
                    folder.string(), error.message());
}

void require_output_space(const TrainingSetup& setup) {
  std::int64_t bytes = setup.folder.tensor_bytes();
  if (setup.options.export_steps > 0)
    bytes += export_bytes({setup.model, nullptr, setup.folder, setup.files}, !setup.options.save_only_model);
  require_space(setup.options.output_dir, bytes);
}

}  // namespace spillway
