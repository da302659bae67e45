#include "session/run_store.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/atomic_file.h"
#include "formats/json_object.h"

namespace spillway {
namespace {

constexpr std::int64_t record_limit_bytes = mib;
constexpr int lock_tries = 100;
constexpr std::chrono::milliseconds between_opens{50};

StoreRecord record_from(const nlohmann::json& json, const std::string& file) {
  StoreRecord record;
  const std::optional<RunId> run = RunId::parse(json.at("run").get<std::string>());
  if (!run) throw UserError("{}: '{}' is not the id of a run", file, json.at("run").get<std::string>());
  record.run = *run;
  for (const auto& directory : json.at("directories")) record.directories.emplace_back(directory.get<std::string>());
  record.folder = json.value("folder", std::string());
  record.whole = json.value("whole", true);
  return record;
}

// A piece by name and rows, and where it lies in its group.
struct Lies {
  std::int32_t group = 0;
  std::int64_t row_end = 0;
  std::int64_t offset_bytes = 0;
};
using PieceKey = std::pair<std::string_view, std::int64_t>;

std::map<PieceKey, Lies> pieces_of(const Manifest& manifest) {
  std::map<PieceKey, Lies> pieces;
  for (const ManifestPiece& piece : manifest.pieces) {
    pieces[{manifest.tensor_of(piece).name, piece.row_begin}] = {piece.group, piece.row_end, piece.offset_bytes};
  }
  return pieces;
}

// The group of the manifest that holds each bundle of the layout, -1 for those without committed pieces; nothing when
// one is not a whole group.
std::optional<std::vector<std::int32_t>> groups_of(const Manifest& manifest, const State& state, const Layout& layout) {
  const std::map<PieceKey, Lies> pieces = pieces_of(manifest);
  std::vector<std::int32_t> groups(static_cast<std::size_t>(layout.state_bundles), -1);
  std::size_t committed = 0;
  for (std::size_t p = 0; p < state.pieces().size(); ++p) {
    const Piece& piece = state.pieces()[p];
    const Tensor& tensor = state.tensor(piece.tensor);
    if (!tensor.committed) continue;
    ++committed;
    const Place& place = layout.piece_places[p];
    const auto found = pieces.find({tensor.name, piece.row_begin});
    if (found == pieces.end()) return std::nullopt;
    std::int32_t& group = groups[index_of(place.bundle)];
    if (group < 0) group = found->second.group;
    if (group != found->second.group || found->second.row_end != piece.row_end ||
        found->second.offset_bytes != place.offset_bytes)
      return std::nullopt;
  }
  if (committed != manifest.pieces.size()) return std::nullopt;
  return groups;
}

std::string absolute_text(const std::filesystem::path& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

}  // namespace

std::vector<StoreRecord> read_store_records(const std::filesystem::path& output_dir) {
  const std::filesystem::path path = output_dir / store_record_name;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  std::vector<StoreRecord> records;
  try {
    const nlohmann::json json = nlohmann::json::parse(read_small_file(path, record_limit_bytes));
    for (const auto& record : json.at("stores")) records.push_back(record_from(record, path.string()));
  } catch (const nlohmann::json::exception& fault) {
    throw UserError(
        "{}: does not say where the commits of the run are ({}); restore it, or name another output_dir to start anew",
        path.string(), text_of(fault));
  }
  return records;
}

void write_store_records(const std::filesystem::path& output_dir, const std::vector<StoreRecord>& records) {
  const std::filesystem::path path = output_dir / store_record_name;
  if (records.empty()) {
    std::error_code error;
    std::filesystem::remove(path, error);
    if (error) throw DeviceError("{}: cannot be removed: {}", path.string(), error.message());
    return;
  }
  nlohmann::ordered_json stores = nlohmann::ordered_json::array();
  for (const StoreRecord& record : records) {
    nlohmann::ordered_json directories = nlohmann::ordered_json::array();
    for (const auto& directory : record.directories) directories.push_back(absolute_text(directory));
    stores.push_back({{"run", record.run.text()},
                      {"directories", directories},
                      {"folder", absolute_text(record.folder.empty() ? output_dir : record.folder)},
                      {"whole", record.whole}});
  }
  write_file_atomically(path, nlohmann::ordered_json{{"stores", stores}}.dump(2) + '\n');
}

std::vector<std::filesystem::path> directories_to_search(const StoreRecord& record,
                                                         const std::filesystem::path& output_dir,
                                                         std::span<const std::filesystem::path> spill_dirs) {
  std::vector<std::filesystem::path> searched{output_dir};
  searched.insert(searched.end(), spill_dirs.begin(), spill_dirs.end());
  searched.insert(searched.end(), record.directories.begin(), record.directories.end());
  return searched;
}

std::optional<SlotSet> find_slot_set(const StoreRecord& record, const std::vector<std::filesystem::path>& searched) {
  for (SlotSet& set : find_slot_sets(searched)) {
    if (set.run == record.run) return std::move(set);
  }
  return std::nullopt;
}

void require_complete(const StoreRecord& record, const std::optional<SlotSet>& set,
                      const std::vector<std::filesystem::path>& searched, const std::filesystem::path& output_dir) {
  if (set && set->complete()) return;
  const SlotSet none{record.run, std::vector<std::filesystem::path>(record.directories.size())};
  throw UserError(
      "the commits of the run cannot be reached: {}; mount that disk or put the file back, or remove {} to go on from "
      "an export, where there is one, or name another output_dir to start anew",
      (set ? *set : none).missing(searched), (output_dir / store_record_name).string());
}

std::shared_ptr<SlotStore> open_store(const SlotSet& set, SpillAccess access) {
  for (int tries = 1;; ++tries) {
    try {
      return SlotStore::open(set, nullptr, access);
    } catch (const FileInUse&) {
      if (tries == lock_tries) throw;
    }
    std::this_thread::sleep_for(between_opens);
  }
}

std::optional<FoundCommit> newest_commit(const std::shared_ptr<SlotStore>& slots, const OpenedCatalogue& opened,
                                         std::vector<std::string>& passed_over,
                                         const std::function<bool(const FoundCommit&)>& wanted) {
  for (auto commit = opened.commits.rbegin(); commit != opened.commits.rend(); ++commit) {
    try {
      FoundCommit found{slots, commit->entry, read_manifest(*slots, commit->entry), {}};
      found.run = parse_run_state(found.manifest.facts.run, fmt::format("the commit of step {}", commit->entry.step));
      if (!wanted(found)) continue;
      const Verification checked = verify_commit(*slots, found.manifest);
      if (checked.faults.empty()) return found;
      passed_over.push_back(fmt::format("the commit of step {}: {}", found.run.step, checked.faults.front()));
    } catch (const Error& error) {
      passed_over.emplace_back(error.what());
    }
  }
  return std::nullopt;
}

std::optional<SlotSnapshot> snapshot_of(const Manifest& manifest, SlotStore& slots, const State& state,
                                        const Layout& layout) {
  if (slots.slot_bytes() != layout.page_bytes) return std::nullopt;
  const auto groups = groups_of(manifest, state, layout);
  if (!groups) return std::nullopt;
  SlotSnapshot snapshot;
  for (std::size_t b = 0; b < groups->size(); ++b) {
    std::vector<SlotId> bundle;
    if ((*groups)[b] >= 0) {
      const ManifestGroup& group = manifest.groups[static_cast<std::size_t>((*groups)[b])];
      if (group.bytes != layout.bundles[b].bytes) return std::nullopt;
      for (std::int64_t e = 0; e < group.extents; ++e) {
        const ManifestExtent& extent = manifest.extents[static_cast<std::size_t>(group.first_extent + e)];
        bundle.push_back(slots.slot_at(extent.file, extent.index));
      }
      if (!bundle.empty() && std::ssize(bundle) != layout.pages_of(static_cast<BundleId>(b))) return std::nullopt;
    }
    snapshot.add(bundle);
  }
  slots.hold(snapshot.slots);
  return snapshot;
}

}  // namespace spillway
