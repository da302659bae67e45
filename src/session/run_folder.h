// The output folder of a run: what earlier runs left there, and whether a new one may have it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "session/options.h"
#include "session/run_state.h"

namespace spillway {

// Another process has the folder.
class FolderInUse : public UserError {
 public:
  using UserError::UserError;
};

// What a folder is locked for: a run has it alone, readers share it.
enum class FolderUse : std::uint8_t { run, reading };

// The folder locked, so that a second run in it is refused; free again when the process ends, however it ends.
// Move-only.
class FolderLock {
 public:
  FolderLock() = default;
  // Throws FolderInUse when another process holds it. A run waits some seconds for readers, who are soon done.
  explicit FolderLock(const std::filesystem::path& folder, FolderUse use = FolderUse::run);
  FolderLock(FolderLock&& other) noexcept { *this = std::move(other); }
  FolderLock& operator=(FolderLock&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(note_, other.note_);
    return *this;
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();
  bool held() const { return descriptor_ >= 0; }
  // Why this file system has no locks for folders, with what follows; empty where it has.
  const std::string& note() const { return note_; }

 private:
  int descriptor_ = -1;
  std::string note_;
};

struct ExportFolder {
  std::int64_t step = 0;
  std::filesystem::path path;
  bool full = false;  // it can be resumed from
};

// The finished exports of a run's folder, the newest first.
std::vector<ExportFolder> exports_in(const std::filesystem::path& output_dir);

// The step of the last whole record of metrics.jsonl, which may begin late and have gaps; 0 without one.
std::int64_t last_recorded_step(const std::filesystem::path& output_dir);

// The state at the end of the run whose finished model the folder holds; nothing where there is no such model, or no
// record of its run. A run writes the record just before the model, so there may be one without a model, of a run that
// was killed between. Throws UserError when the record cannot be read.
std::optional<RunState> finished_run(const std::filesystem::path& output_dir);

// Throws UserError, saying what to do, unless the run that finished there is the run `now` with so many steps.
void require_same_run(const RunState& finished, const RunState& now, std::int64_t total_steps,
                      const std::filesystem::path& output_dir);

// Makes the folder, and removes what a killed run left half written: returns the steps of its exports. UserError when
// the folder holds a finished model, files that are no run's, or a run that would be lost: one that may not be resumed,
// or that left nothing to resume. `has_store`: slot files of a run were found where this one would put its own.
std::vector<std::int64_t> claim_output(const TrainOptions& options, bool has_store);

}  // namespace spillway
