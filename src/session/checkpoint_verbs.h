// What `spillway checkpoint` does: the commits and exports of a run's folder, listed, checked, exported and dropped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace spillway {

struct CheckpointRow {
  enum class Kind : std::uint8_t { commit, export_folder };
  Kind kind = Kind::commit;
  std::int64_t step = 0;
  bool full = true;                 // it can be resumed from
  bool left = false;                // the run has gone back to an older one, as far as is known (not of weights alone)
  std::int64_t bytes = 0;           // of what it holds
  std::int64_t unix_seconds = 0;    // when it was made
  std::string where = {};           // a folder, or the first slot file
  std::vector<std::string> faults;  // what of it does not verify: file, tensor and offset
};

struct CheckpointReport {
  std::vector<CheckpointRow> rows;  // the newest first
  std::vector<std::string> notes;   // what could not be read at all
  std::vector<std::string> told;    // what prune passed over or left, and why
  bool run_going_on = false;        // in the folder: no commit was looked at
  bool damaged() const;             // something of what was looked at does not verify
  bool sound() const { return !damaged() && !run_going_on; }
};

// All throw UserError when the folder is none of a run. While a run is going on in it, list and verify look at its
// exports alone, and the others throw FolderInUse. Nothing but prune writes to what a run left.

// Reads headers and manifests, not the data.
CheckpointReport list_checkpoints(const std::filesystem::path& output_dir);
// Reads everything.
CheckpointReport verify_checkpoints(const std::filesystem::path& output_dir);
// Writes the newest commit, or that of `step`, as a folder; one that the run has left only where there is no other.
// Returns its step.
std::int64_t export_checkpoint(const std::filesystem::path& output_dir, std::int64_t step,
                               const std::filesystem::path& to, bool only_model);
// Removes all commits but the newest `keep`, and of exports, those with the state of the run and those of weights
// alone, all but the newest `keep` of each. Of what the run has left, commits go where anything else is kept to go on
// from, and exports before others. With `keep` 0 nothing is left to resume from. In a copy of a folder, commits that
// belong to the original stay, which is told. Returns what was removed. Throws UserError where an export cannot be
// removed.
CheckpointReport prune_checkpoints(const std::filesystem::path& output_dir, std::int64_t keep);

}  // namespace spillway
