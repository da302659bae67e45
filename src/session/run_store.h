// The commits of a run on disk: where they are, how they are read, and how the state of a run comes from one.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/catalogue.h"
#include "checkpoint/restore.h"
#include "session/run_state.h"
#include "session/state_source.h"

namespace spillway {

// Slot files of a run, as OUTPUT_DIR/store.json names them: a run may go on with other spill directories, and still
// find what it wrote before.
struct StoreRecord {
  RunId run;
  std::vector<std::filesystem::path> directories;
  std::filesystem::path folder = {};  // the output folder whose run made it; empty: this one
  bool whole = true;                  // false while its files are being made or removed: no commit in them counts
};

inline constexpr std::string_view store_record_name = "store.json";

// The newest first; empty without the file. Throws UserError when the file is not as it was written.
std::vector<StoreRecord> read_store_records(const std::filesystem::path& output_dir);
// Durable on return; without records the file is removed. Throws DeviceError.
void write_store_records(const std::filesystem::path& output_dir, const std::vector<StoreRecord>& records);

// Where the files of a record may lie: in its folder, which may have been moved, in the directories of a run that wants
// to go on, and where they were made; the first that has a file wins.
std::vector<std::filesystem::path> directories_to_search(const StoreRecord& record,
                                                         const std::filesystem::path& output_dir,
                                                         std::span<const std::filesystem::path> spill_dirs);
// The files of a record; nothing when none is there.
std::optional<SlotSet> find_slot_set(const StoreRecord& record, const std::vector<std::filesystem::path>& searched);
// Throws UserError, saying what is missing and what to do, unless all its files were found.
void require_complete(const StoreRecord& record, const std::optional<SlotSet>& set,
                      const std::vector<std::filesystem::path>& searched, const std::filesystem::path& output_dir);

// Opens and locks the files. A process that was killed may hold its locks for some milliseconds more, so a lock that is
// taken is tried again for a while. Throws UserError and DeviceError as SlotStore::open does.
std::shared_ptr<SlotStore> open_store(const SlotSet& set, SpillAccess access = SpillAccess::write);

// A commit that can be read, and the run it is of.
struct FoundCommit {
  std::shared_ptr<SlotStore> slots;
  CommitEntry entry;
  Manifest manifest;
  RunState run;
};

// The newest commit of an opened store that `wanted` says yes to and whose every byte verifies; nothing when there is
// none. All its slots are read, after `wanted`. Appends to `passed_over` a sentence for each that does not verify.
std::optional<FoundCommit> newest_commit(const std::shared_ptr<SlotStore>& slots, const OpenedCatalogue& opened,
                                         std::vector<std::string>& passed_over,
                                         const std::function<bool(const FoundCommit&)>& wanted);

// The tensors of a commit, whose slots must not be reused meanwhile. `held_slots`: two where a weight and its low half
// are read in turn.
class CommitSource final : public StateSource {
 public:
  CommitSource(const SlotStore& slots, const Manifest& manifest, std::size_t held_slots)
      : reader_(slots, manifest, held_slots) {}
  void read(const Tensor& tensor, std::int64_t row_begin, std::span<std::byte> into) override {
    reader_.read(tensor.name, row_begin, into);
  }

 private:
  TensorReader reader_;
};

// The slots of a commit by bundle of this layout, each held once more, when the layout has the same pieces side by side
// on pages of the same size: the run may then go on in these slots. Otherwise nothing.
std::optional<SlotSnapshot> snapshot_of(const Manifest& manifest, SlotStore& slots, const State& state,
                                        const Layout& layout);

}  // namespace spillway
