#include "session/checkpoint_verbs.h"

#include <algorithm>
#include <chrono>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/hf_config.h"
#include "session/folder_checksums.h"
#include "session/known_stores.h"
#include "session/portable.h"
#include "session/run_branches.h"
#include "session/run_folder.h"
#include "session/run_store.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

struct OpenStore {
  std::shared_ptr<SlotStore> slots;
  OpenedCatalogue catalogue;
};

void require_run(const fs::path& dir) {
  std::error_code error;
  if (!fs::is_directory(dir, error)) throw UserError("{} is not a folder", dir.string());
  if (!read_store_records(dir).empty() || !exports_in(dir).empty()) return;
  if (finished_run(dir))
    throw UserError(
        "the run in {} is finished: it holds the model, and no checkpoints any more; export_steps keeps some",
        dir.string());
  throw UserError("{} holds no checkpoints; name the output folder of a run", dir.string());
}

// The stores of the folder, to be read. Those that cannot be opened are told in `notes`, where there is one.
std::vector<OpenStore> open_stores(const fs::path& dir, std::vector<std::string>* notes) {
  std::vector<OpenStore> stores;
  for (const StoreRecord& record : read_store_records(dir)) {
    try {
      if (!record.whole) continue;
      const std::vector<fs::path> searched = directories_to_search(record, dir, {});
      const std::optional<SlotSet> set = find_slot_set(record, searched);
      require_complete(record, set, searched, dir);
      OpenStore store{open_store(*set, SpillAccess::read), {}};
      store.catalogue = read_catalogue(*store.slots);
      if (notes != nullptr)
        notes->insert(notes->end(), store.catalogue.passed_over.begin(), store.catalogue.passed_over.end());
      stores.push_back(std::move(store));
    } catch (const Error& error) {
      if (notes == nullptr) throw;
      notes->emplace_back(error.what());
    }
  }
  return stores;
}

std::int64_t bytes_in(const fs::path& folder) {
  std::int64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.is_regular_file(error)) bytes += static_cast<std::int64_t>(entry.file_size(error));
  }
  return bytes;
}

std::int64_t unix_seconds_of(const fs::path& path) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  if (error) return 0;
  const auto system = std::chrono::file_clock::to_sys(time);
  return std::chrono::duration_cast<std::chrono::seconds>(system.time_since_epoch()).count();
}

CheckpointRow row_of(const SlotStore& slots, const CommitEntry& entry, const RunBranches& branches, bool verify) {
  CheckpointRow row;
  row.step = entry.step;
  row.unix_seconds = entry.unix_seconds;
  row.where = slots.path(0).string();
  try {
    const Manifest manifest = read_manifest(slots, entry);
    row.bytes = manifest.data_bytes();
    row.left = !branches.hold(parse_run_state(manifest.facts.run, row.where));
    if (verify) row.faults = verify_commit(slots, manifest).faults;
  } catch (const Error& error) {
    row.faults.emplace_back(error.what());
  }
  return row;
}

CheckpointRow row_of(const ExportFolder& folder, const RunBranches& branches, bool verify) {
  CheckpointRow row;
  row.kind = CheckpointRow::Kind::export_folder;
  row.step = folder.step;
  row.full = folder.full;
  row.bytes = bytes_in(folder.path);
  row.unix_seconds = unix_seconds_of(folder.path);
  row.where = folder.path.string();
  try {
    if (verify) row.faults = verify_checksums(folder.path);
    row.left = folder.full && !branches.hold(read_run_state(folder.path));
  } catch (const Error& error) {
    row.faults.emplace_back(error.what());
  }
  return row;
}

CheckpointReport report_of(const fs::path& dir, bool verify) {
  require_run(dir);
  CheckpointReport report;
  RunBranches branches;
  std::vector<OpenStore> stores;
  FolderLock lock;  // while they are read
  try {
    branches = RunBranches(dir);
  } catch (const UserError& error) {
    report.notes.emplace_back(error.what());
  }
  try {
    lock = FolderLock(dir, FolderUse::reading);
    stores = open_stores(dir, &report.notes);
  } catch (const FolderInUse&) {
    report.run_going_on = true;
  }
  for (const OpenStore& store : stores) {
    for (auto commit = store.catalogue.commits.rbegin(); commit != store.catalogue.commits.rend(); ++commit)
      report.rows.push_back(row_of(*store.slots, commit->entry, branches, verify));
  }
  for (const ExportFolder& folder : exports_in(dir)) report.rows.push_back(row_of(folder, branches, verify));
  std::stable_sort(report.rows.begin(), report.rows.end(),
                   [](const auto& a, const auto& b) { return a.step > b.step; });
  return report;
}

std::string option_of(const RunState& run, const std::string& key) {
  const auto found = run.options.find(key);
  if (found == run.options.end()) throw UserError("the commit of step {} does not say its {}", run.step, key);
  return found->second;
}

// The folder that the weights came from. Earlier versions wrote down what was given.
fs::path model_of(const RunState& run) {
  fs::path model = option_of(run, "model");
  std::error_code error;
  if (!model.is_absolute() && !fs::is_directory(model, error))
    throw UserError("the commit of step {} was made with the model folder {}; ask from the directory that it lies in",
                    run.step, model.string());
  return model;
}

struct Export {
  CheckpointRow row;
  fs::path path;
};

// What a run goes on from first, then what it has left, then what says nothing of itself; the newest first of each.
std::vector<Export> exports_by_worth(const fs::path& dir, const RunBranches& branches) {
  std::vector<Export> exports;
  for (const ExportFolder& folder : exports_in(dir)) exports.push_back({row_of(folder, branches, false), folder.path});
  std::stable_partition(exports.begin(), exports.end(), [](const Export& folder) { return !folder.row.left; });
  std::stable_partition(exports.begin(), exports.end(), [](const Export& folder) { return folder.row.faults.empty(); });
  return exports;
}

// Takes out the first `keep` that can be resumed from, and the first `keep` of weights alone; those that remain are to
// go. Whether the run goes on from one that is kept.
bool keep_newest(std::vector<Export>& exports, std::int64_t keep) {
  std::int64_t full = 0;
  std::int64_t weights = 0;
  bool goes_on = false;
  std::vector<Export> to_go;
  for (Export& folder : exports) {
    if ((folder.row.full ? full : weights)++ >= keep) {
      to_go.push_back(std::move(folder));
    } else if (folder.row.full && !folder.row.left && folder.row.faults.empty()) {
      goes_on = true;
    }
  }
  exports = std::move(to_go);
  return goes_on;
}

void export_commit(const SlotStore& slots, const Manifest& manifest, const RunState& run, const fs::path& to,
                   bool only_model) {
  const ModelFolder folder(model_of(run));
  const HfConfig config = read_hf_config(folder.config_path());
  const ModelFiles files(folder, config.model);
  const DType dtype = option_of(run, "dtype") == "bf16" ? DType::bf16 : DType::f32;
  const Model model(config.model, dtype, Purpose::training, Cut{},
                    option_of(run, "moments") == "8bit" ? Moments::packed : Moments::f32);
  CommitSource source(slots, manifest, 2);
  write_export(source, {model, nullptr, folder, files}, only_model ? nullptr : &run, to);
}

}  // namespace

bool CheckpointReport::damaged() const {
  return !notes.empty() || std::any_of(rows.begin(), rows.end(), [](const auto& row) { return !row.faults.empty(); });
}

CheckpointReport list_checkpoints(const fs::path& dir) { return report_of(dir, false); }
CheckpointReport verify_checkpoints(const fs::path& dir) { return report_of(dir, true); }

std::int64_t export_checkpoint(const fs::path& dir, std::int64_t step, const fs::path& to, bool only_model) {
  require_run(dir);
  std::error_code error;
  if (fs::exists(to, error)) throw UserError("{} is there already; name another folder", to.string());
  const FolderLock lock(dir, FolderUse::reading);
  const RunBranches branches(dir);
  const std::vector<OpenStore> stores = open_stores(dir, nullptr);
  for (const bool left : {false, true}) {
    for (const OpenStore& store : stores) {
      for (auto commit = store.catalogue.commits.rbegin(); commit != store.catalogue.commits.rend(); ++commit) {
        if (step >= 0 && commit->entry.step != step) continue;
        const Manifest manifest = read_manifest(*store.slots, commit->entry);
        const RunState run =
            parse_run_state(manifest.facts.run, fmt::format("the commit of step {}", commit->entry.step));
        if (branches.hold(run) == left) continue;
        export_commit(*store.slots, manifest, run, to, only_model);
        return run.step;
      }
    }
  }
  if (step < 0) throw UserError("{} holds no commit to export", dir.string());
  throw UserError("{} holds no commit of step {}; `spillway checkpoint list {}` shows what it holds", dir.string(),
                  step, dir.string());
}

CheckpointReport prune_checkpoints(const fs::path& dir, std::int64_t keep) {
  require_run(dir);
  const FolderLock lock(dir);
  const RunBranches branches(dir);
  CheckpointReport removed;
  KnownStores stores(dir, {}, [&](const std::string& sentence) { removed.told.push_back(sentence); });
  stores.read();
  stores.open();
  std::vector<Export> exports = exports_by_worth(dir, branches);
  const bool goes_on = keep_newest(exports, keep) || stores.hold_commit_of(branches);
  stores.prune(keep, goes_on ? branches : RunBranches(), [&](const auto& store, const CommitEntry& entry) {
    removed.rows.push_back(row_of(*store.slots, entry, branches, false));
  });
  for (const Export& folder : exports) {
    removed.rows.push_back(folder.row);
    std::error_code error;
    fs::remove_all(folder.path, error);
    if (error) throw UserError("{} cannot be removed: {}", folder.path.string(), error.message());
  }
  return removed;
}

}  // namespace spillway
