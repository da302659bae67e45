#include "session/run_branches.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/atomic_file.h"
#include "formats/file.h"

namespace spillway {
namespace {

constexpr std::int64_t file_limit_bytes = mib;
constexpr std::int64_t goes_on = std::numeric_limits<std::int64_t>::max();

}  // namespace

RunBranches::RunBranches(const std::filesystem::path& output_dir) {
  const std::filesystem::path path = output_dir / run_branches_name;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return;
  try {
    const nlohmann::json json = nlohmann::json::parse(read_small_file(path, file_limit_bytes));
    for (const auto& branch : json.at("branches"))
      branches_.push_back({branch.at("branch").get<std::string>(), branch.value("last_step", goes_on)});
  } catch (const nlohmann::json::exception& fault) {
    throw UserError(
        "{}: does not say which steps the run has left ({}); restore it, or remove it to go on from the newest of all",
        path.string(), fault.what());
  }
}

bool RunBranches::hold(const RunState& then) const {
  return branches_.empty() || std::any_of(branches_.begin(), branches_.end(), [&](const Branch& branch) {
           return branch.name == then.branch && then.step <= branch.last_step;
         });
}

bool RunBranches::is_last(const RunState& then) const {
  return !then.branch.empty() && (branches_.empty() || branches_.back().name == then.branch);
}

void RunBranches::leave(const RunState& then, const std::string& branch) {
  const auto left =
      std::find_if(branches_.begin(), branches_.end(), [&](const Branch& known) { return known.name == then.branch; });
  // Branches after it began later. What led to a branch that is not the run's is not known.
  branches_.erase(left == branches_.end() ? branches_.begin() : left, branches_.end());
  branches_.push_back({then.branch, then.step});
  branches_.push_back({branch, goes_on});
}

void RunBranches::write(const std::filesystem::path& output_dir) const {
  const std::filesystem::path path = output_dir / run_branches_name;
  if (branches_.empty()) return remove_file(path);
  nlohmann::ordered_json branches = nlohmann::ordered_json::array();
  for (const Branch& branch : branches_) {
    branches.push_back({{"branch", branch.name}});
    if (branch.last_step != goes_on) branches.back()["last_step"] = branch.last_step;
  }
  write_file_atomically(path, nlohmann::ordered_json{{"branches", branches}}.dump(2) + '\n');
}

}  // namespace spillway
