#include "report/run_files.h"

#include <fstream>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/file.h"
#include "formats/machine_file.h"
#include "formats/shown.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t most_config_bytes = mib;
constexpr std::string_view metrics_name = "metrics.jsonl";
constexpr std::string_view config_name = "run.yaml";

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

void read_metrics(RunFiles& run) {
  const fs::path path = run.folder / metrics_name;
  if (!is_file(path)) {
    run.notes.push_back(fmt::format("{}: is not there, so there are no curves over steps", path.string()));
    return;
  }
  std::ifstream file(path, std::ios::binary);
  std::int64_t wrong = 0;
  std::int64_t first_wrong = 0;
  std::int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    std::optional<StepRecord> record = record_from_json(line);
    const bool follows = record && (run.steps.empty() || record->step > run.steps.back().step);
    if (follows) {
      run.steps.push_back(std::move(*record));
    } else if (wrong++ == 0) {
      first_wrong = number;
    }
  }
  if (wrong > 0)
    run.notes.push_back(fmt::format("{}: {} of {} lines are no whole records and were left out, the first is line {}",
                                    path.string(), wrong, number, first_wrong));
}

// `missing`: what to say when the file is not there; empty: nothing.
std::optional<FlightRecord> read_record(RunFiles& run, const fs::path& path, std::string_view missing) {
  if (!is_file(path)) {
    if (!missing.empty()) run.notes.push_back(fmt::format("{}: is not there, so {}", path.string(), missing));
    return std::nullopt;
  }
  try {
    FlightRecord record = read_flight(path);
    if (record.catalog.plans.empty())
      run.notes.push_back(fmt::format("{}: was written before the run was planned, and shows no step", path.string()));
    return record;
  } catch (const Error& error) {
    const std::string what = error.what();
    const bool named = what.find(path.string()) != std::string::npos;
    run.notes.push_back(shown(named ? what : fmt::format("{}: {}", path.string(), what)));
    return std::nullopt;
  }
}

void read_machine_of(RunFiles& run) {
  const fs::path path = run.folder / run_machine_name;
  if (!is_file(path)) {
    run.notes.push_back(fmt::format("{}: is not there, so the machine is not known", path.string()));
    return;
  }
  try {
    run.machine = read_machine(path);
  } catch (const Error& error) {
    run.notes.emplace_back(error.what());
  }
}

void read_config(RunFiles& run) {
  const fs::path path = run.folder / config_name;
  if (!is_file(path)) {
    run.notes.push_back(fmt::format("{}: is not there, so the options of the run are not known", path.string()));
    return;
  }
  try {
    run.config_text = read_small_file(path, most_config_bytes);
  } catch (const Error& error) {
    run.notes.emplace_back(error.what());
  }
}

}  // namespace

RunFiles read_run(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw UserError("{}: is no folder; name the output folder of a run", folder.string());
  RunFiles run;
  run.folder = folder;
  const fs::path whole = fs::absolute(folder, error).lexically_normal();
  run.name = (whole.has_filename() ? whole : whole.parent_path()).filename().string();
  read_metrics(run);
  run.flight = read_record(run, folder / flight_file_name, "there is no timeline of a step and no story of its end");
  run.step_record = read_record(run, folder / steps_file_name, "");
  if (run.steps.empty() && !run.flight)
    throw UserError("{}: holds no run that can be shown ({})", folder.string(),
                    run.notes.empty() ? "metrics.jsonl has no record" : run.notes.front());
  read_machine_of(run);
  read_config(run);
  return run;
}

}  // namespace spillway
