#include "session/run_branches.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/atomic_file.h"
#include "formats/file.h"
#include "formats/json_object.h"
#include "session/portable.h"

namespace spillway {
namespace {

constexpr std::int64_t file_limit_bytes = 4 * mib;

}  // namespace

RunBranches::RunBranches(const std::filesystem::path& output_dir) {
  const std::filesystem::path path = output_dir / run_branches_name;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return;
  try {
    const nlohmann::json json = nlohmann::json::parse(read_small_file(path, file_limit_bytes));
    current_ = json.at("branch").get<std::string>();
    for (const auto& branch : json.at("branches")) {
      branches_.push_back({branch.at("branch").get<std::string>(), branch.at("from").get<std::string>(),
                           branch.at("after_step").get<std::int64_t>()});
    }
  } catch (const nlohmann::json::exception& fault) {
    throw UserError(
        "{}: does not say which steps the run has left ({}); restore it, or remove it to go on from the newest of all",
        path.string(), text_of(fault));
  }
}

bool RunBranches::hold(const RunState& then) const {
  if (current_.empty()) return true;
  std::string name = current_;
  std::int64_t last_step = std::numeric_limits<std::int64_t>::max();
  for (std::size_t steps = 0; steps <= branches_.size(); ++steps) {  // each branch once, whatever the file says
    if (then.branch == name) return then.step <= last_step;
    const auto branch =
        std::find_if(branches_.begin(), branches_.end(), [&](const Branch& b) { return b.name == name; });
    if (branch == branches_.end()) return false;
    name = branch->from;
    last_step = std::min(last_step, branch->after_step);
  }
  return false;
}

bool RunBranches::hold_export(const std::filesystem::path& folder) const {
  try {
    return hold(read_run_state(folder));
  } catch (const Error&) {
    return false;
  }
}

bool RunBranches::is_last(const RunState& then) const {
  return !then.branch.empty() && (current_.empty() || current_ == then.branch);
}

void RunBranches::leave(const RunState& then, const std::string& branch) {
  branches_.push_back({branch, then.branch, then.step});
  current_ = branch;
}

void RunBranches::write(const std::filesystem::path& output_dir) const {
  const std::filesystem::path path = output_dir / run_branches_name;
  if (branches_.empty()) {
    std::error_code error;
    std::filesystem::remove(path, error);
    if (error) throw DeviceError("{}: cannot be removed: {}", path.string(), error.message());
    return;
  }
  nlohmann::ordered_json branches = nlohmann::ordered_json::array();
  for (const Branch& branch : branches_)
    branches.push_back({{"branch", branch.name}, {"from", branch.from}, {"after_step", branch.after_step}});
  write_file_atomically(path, nlohmann::ordered_json{{"branch", current_}, {"branches", branches}}.dump(2) + '\n');
}

}  // namespace spillway
