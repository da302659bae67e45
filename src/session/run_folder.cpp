#include "session/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "formats/file.h"
#include "session/portable.h"
#include "session/run_branches.h"
#include "session/run_store.h"
#include "telemetry/metrics.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr int reader_tries = 40;
constexpr std::chrono::milliseconds between_tries{50};
constexpr std::string_view export_prefix = "checkpoint-";
constexpr std::string_view half_written_prefix = ".checkpoint-";
constexpr std::string_view half_written_suffix = ".incomplete";

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// -1: not the name of an export.
std::int64_t step_of(const std::string& name) {
  if (!name.starts_with(export_prefix)) return -1;
  std::int64_t step = -1;
  const char* const end = name.data() + name.size();
  const auto result = std::from_chars(name.data() + export_prefix.size(), end, step);
  return result.ec == std::errc{} && result.ptr == end ? step : -1;
}

bool of_a_run(const fs::path& dir) {  // its first files
  if (is_there(dir / "metrics.jsonl") || is_there(dir / store_record_name)) return true;
  try {
    return !RunBranches(dir).never_left();
  } catch (const Error&) {
    return false;
  }
}

// The last file of a model to appear.
bool has_whole_model(const fs::path& dir) {
  return is_there(dir / "model.safetensors") || is_there(dir / "model.safetensors.index.json");
}

// Of a model whose index is missing, and whose run said that it was about to write it.
bool is_shard_of_killed_run(const fs::path& dir, const std::string& name) {
  return name.starts_with("model-") && is_there(dir / run_state_name) && !has_whole_model(dir);
}

// The first file of a finished model or, in a folder that is no run's, of anything that a model folder has.
std::string in_the_way(const fs::path& dir) {
  const bool ours = of_a_run(dir);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    std::string name = entry.path().filename().string();
    const std::string kind = entry.path().extension().string();
    if (ours && is_shard_of_killed_run(dir, name)) continue;
    if (kind == ".safetensors" || name == "model.safetensors.index.json") return name;
    if (!ours && (kind == ".json" || kind == ".jsonl" || kind == ".yaml" || kind == ".jinja")) return name;
  }
  return {};
}

// With those above it that are missing, so that all of their names are there after a power loss.
void make_folder(const fs::path& dir) {
  std::vector<fs::path> missing;
  std::error_code error;
  for (fs::path at = plain_path(dir); !fs::exists(at, error) && at.has_relative_path(); at = at.parent_path())
    missing.push_back(at);
  error.clear();
  fs::create_directories(dir, error);
  if (error) throw UserError("output_dir: {} cannot be made: {}", dir.string(), error.message());
  for (const fs::path& made : missing) sync_folder(made.parent_path());
}

std::vector<std::int64_t> remove_half_written(const fs::path& dir) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    std::error_code ignored;  // it takes space and nothing else
    if (!name.starts_with(half_written_prefix) || !name.ends_with(half_written_suffix)) continue;
    fs::remove_all(entry.path(), ignored);
    const std::int64_t step = step_of(name.substr(1, name.size() - 1 - half_written_suffix.size()));
    if (step >= 0) steps.push_back(step);
  }
  return steps;
}

}  // namespace

FolderLock::FolderLock(const fs::path& folder, FolderUse use)
    : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ < 0) throw UserError("{}: cannot be opened: {}", folder.string(), errno_text(errno));
  bool readers = false;
  for (int tries = 0; tries < reader_tries; ++tries) {
    if (::flock(descriptor_, (use == FolderUse::run ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0) return;
    if (errno != EWOULDBLOCK) {  // NFS locks what is open for writing, and a folder cannot be
      note_ = fmt::format("{} cannot be locked on this file system ({}): see that no second run is started in it",
                          folder.string(), errno_text(errno));
      return;
    }
    readers = use == FolderUse::run && ::flock(descriptor_, LOCK_SH | LOCK_NB) == 0;  // whoever holds it shares it
    if (!readers) break;
    ::flock(descriptor_, LOCK_UN);
    std::this_thread::sleep_for(between_tries);
  }
  ::close(std::exchange(descriptor_, -1));
  if (readers)
    throw FolderInUse("output_dir: spillway checkpoint is reading what {} holds; start again when it has ended",
                      folder.string());
  if (use == FolderUse::reading)
    throw FolderInUse("a run is going on in {}; ask again when it has ended", folder.string());
  throw FolderInUse("output_dir: another run is going on in {}; wait for its end, or name another directory",
                    folder.string());
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::vector<ExportFolder> exports_in(const fs::path& output_dir) {
  std::vector<ExportFolder> exports;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(output_dir, error)) {
    const std::int64_t step = step_of(entry.path().filename().string());
    if (step >= 0) exports.push_back({step, entry.path(), is_there(entry.path() / run_state_name)});
  }
  std::sort(exports.begin(), exports.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  return exports;
}

std::int64_t last_recorded_step(const fs::path& output_dir) {
  std::ifstream file(output_dir / "metrics.jsonl");
  std::int64_t last = 0;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    if (const std::int64_t step = step_of_record(line); step > 0) last = step;
  }
  return last;
}

std::optional<RunState> finished_run(const fs::path& output_dir) {
  if (!of_a_run(output_dir) || !has_whole_model(output_dir) || !is_there(output_dir / run_state_name))
    return std::nullopt;
  return read_run_state(output_dir);
}

void require_same_run(const RunState& finished, const RunState& now, std::int64_t total_steps,
                      const fs::path& output_dir) {
  if (const std::string what = difference_of(finished, now); !what.empty())
    throw UserError("output_dir: {} holds the finished model of another run: {}; name another directory, or remove it",
                    output_dir.string(), what);
  if (total_steps < finished.step)
    throw UserError(
        "max_steps: the run in {} is finished and has made {} steps, and {} are asked for; name another "
        "output_dir",
        output_dir.string(), finished.step, total_steps);
  if (total_steps == finished.step) return;
  const RunBranches branches(output_dir);
  const std::vector<ExportFolder> exports = exports_in(output_dir);
  const auto full = std::find_if(exports.begin(), exports.end(),
                                 [&](const ExportFolder& e) { return e.full && branches.hold_export(e.path); });
  throw UserError(
      "max_steps: the run in {} is finished and has made {} steps, and {} are asked for, but its optimizer state is "
      "gone; name another output_dir, {}",
      output_dir.string(), finished.step, total_steps,
      full == exports.end() ? "and set export_steps to keep what a longer run can go on from"
                            : fmt::format("with resume_from_checkpoint: {} to go on from there", full->path.string()));
}

std::vector<std::int64_t> claim_output(const TrainOptions& options, bool has_store) {
  const fs::path dir = options.output_dir;
  if (const std::string name = in_the_way(dir); !name.empty())
    throw UserError("output_dir: {} already holds {}; name another directory, or remove it", dir.string(), name);
  const std::vector<ExportFolder> exports = exports_in(dir);
  const std::int64_t recorded = last_recorded_step(dir);
  const bool has_full = std::any_of(exports.begin(), exports.end(), [](const ExportFolder& e) { return e.full; });
  const bool holds_a_run = has_store || !exports.empty() || recorded > 0;
  const std::string& resume = options.resume_from_checkpoint;
  if (resume == "none" && holds_a_run)
    throw UserError(
        "output_dir: {} already holds a run, and resume_from_checkpoint is none; name another directory, or give auto "
        "to go on with it",
        dir.string());
  if (resume == "auto" && holds_a_run && !has_store && !has_full)
    throw UserError(
        "output_dir: {} already holds a run of {} steps that left nothing to resume; name another directory, or remove "
        "it",
        dir.string(), recorded);
  std::error_code error;
  const bool own = fs::equivalent(plain_path(resume).parent_path(), dir, error);
  if (resume != "auto" && resume != "none" && holds_a_run && !own)
    throw UserError(
        "output_dir: {} already holds a run, and resume_from_checkpoint names another; name another directory",
        dir.string());
  make_folder(dir);
  return remove_half_written(dir);
}

}  // namespace spillway
