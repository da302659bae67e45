// Which of the checkpoints in a run's folder are the run's own way: a run that goes on from an older one leaves the
// steps behind it, and what they saved lies in the folder too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "session/run_state.h"

namespace spillway {

inline constexpr std::string_view run_branches_name = "branches.json";

// The branches that led to where a run is, as OUTPUT_DIR/branches.json names them. Without the file, as in a run that
// never went back, all is of the run.
class RunBranches {
 public:
  RunBranches() = default;
  // Throws UserError when the file is not as it was written.
  explicit RunBranches(const std::filesystem::path& output_dir);

  // Whether `then` is a state that the run has been in, and has not gone back from.
  bool hold(const RunState& then) const;
  // Whether the run that goes on from `then` may stay on its branch: it has not left it.
  bool is_last(const RunState& then) const;
  // The run goes on from `then` as another branch, of this name.
  void leave(const RunState& then, const std::string& branch);
  // Durable on return; where nothing was left there is no file. Throws DeviceError.
  void write(const std::filesystem::path& output_dir) const;

 private:
  struct Branch {
    std::string name;
    std::int64_t last_step = 0;  // before the run left it; the last branch goes on
  };
  std::vector<Branch> branches_;  // the oldest first
};

}  // namespace spillway
