// Which of the checkpoints in a run's folder are the run's own way: a run that goes on from an older one, whose path it
// was given, leaves the steps behind it, and what they saved lies in the folder too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "session/run_state.h"

namespace spillway {

inline constexpr std::string_view run_branches_name = "branches.json";

inline constexpr std::string_view why_left = "the run has left it, by going on from an older checkpoint";

// The branches of a run as a tree, and which of them it is on, as OUTPUT_DIR/branches.json says. Without the file, as
// of a run that never went back, all is of the run.
class RunBranches {
 public:
  RunBranches() = default;
  // Throws UserError when the file is not as it was written.
  explicit RunBranches(const std::filesystem::path& output_dir);

  bool never_left() const { return branches_.empty(); }
  // The step after which the branch begins that the run is on. It has left something.
  std::int64_t began_after() const { return branches_.back().after_step; }
  // Whether the way to where the run is leads over `then`.
  bool hold(const RunState& then) const;
  // The same of what an export says; false where it cannot be read.
  bool hold_export(const std::filesystem::path& folder) const;

  // Whether the run that goes on from `then` may stay on its branch: it has not left it.
  bool is_last(const RunState& then) const;
  void stay_on(const RunState& then) { current_ = then.branch; }
  // The run goes on from `then` as another branch, of this name.
  void leave(const RunState& then, const std::string& branch);
  // Durable on return; where nothing was ever left the file is removed. Throws DeviceError.
  void write(const std::filesystem::path& output_dir) const;

 private:
  struct Branch {
    std::string name;
    std::string from;         // the branch it began on
    std::int64_t after_step;  // of that
  };
  std::string current_;  // empty: not known
  std::vector<Branch> branches_;
};

}  // namespace spillway
