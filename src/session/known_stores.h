// The slot stores that an output folder names in store.json: those that runs in it left, and that of the run going on.
//
// A store belongs to the folder whose run made it. A copy of a folder names the same stores as the folder it was copied
// from; what lies in the copy belongs to the copy, what lies elsewhere does not: it is read, and never removed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "session/run_branches.h"
#include "session/run_store.h"

namespace spillway {

class KnownStores {
 public:
  struct Store {
    StoreRecord record;
    std::optional<SlotSet> set;        // where its files lie now
    std::shared_ptr<SlotStore> slots;  // open and locked
    OpenedCatalogue catalogue;
    bool owned = true;
  };

  // `spill_dirs`: of the run. `note` is told what is passed over or left, and why.
  KnownStores(std::filesystem::path output_dir, std::vector<std::filesystem::path> spill_dirs,
              std::function<void(const std::string&)> note)
      : output_dir_(std::move(output_dir)), spill_dirs_(std::move(spill_dirs)), note_(std::move(note)) {}

  // Reads store.json. Throws UserError.
  void read();
  bool any() const { return !older_.empty(); }

  // Opens and locks the stores of earlier runs; removes what a run left that never finished making its files. Throws
  // UserError where files are missing (a disk that is not mounted), or in use.
  void open();
  // The newest commit that `branches` hold and whose every byte verifies, of the newest store that has one: an older
  // store may hold later steps, which the run left by going on from an older checkpoint.
  std::optional<FoundCommit> newest_commit(const RunBranches& branches);
  // A sentence when the stores held commits of which none verifies any more.
  const std::optional<std::string>& lost() const { return lost_; }

  // Whether the run can go on in the slots of this commit: they lie where it would make its own.
  bool serves(const FoundCommit& commit) const;
  // It does; the store is the run's own from now on.
  Store take(const FoundCommit& commit);

  // Makes the run's own store. Its record is durable before its files are made, so that nothing is left behind that no
  // record names. Stores that never held a commit give their space back first. Throws DeviceError without room.
  std::shared_ptr<SlotStore> make(SlotStoreOptions options);

  // The run has a durable commit of its own, or needs none any more: the older stores are removed.
  void drop_older();
  // The run is given up before it has committed: what make made is removed.
  void drop_own();
  // The model is written: the run's own as well, and the record. Nothing may use its slots any more. Without `open`
  // before, what is not to be found is left.
  void drop_all();
  // After open: whether one of the commits is of `branches`.
  bool hold_commit_of(const RunBranches& branches) const;
  // After open: removes the commits that are not of `branches`, and all others but the newest `keep`, of the stores
  // that belong to this folder. Of others nothing is removed, and with `keep` 0 they are forgotten. `removing` is
  // called before.
  using Commits = std::function<void(const Store&, const CommitEntry&)>;
  void prune(std::int64_t keep, const RunBranches& branches, const Commits& removing);

 private:
  static bool is_left(const Store& store, const RetainedCommit& commit, const RunBranches& branches);
  void tell_that_it_stays(const Store& store) const;
  void write_records() const;
  void locate(Store& store) const;
  void drop(const std::function<bool(const Store&)>& which);
  std::vector<std::filesystem::path> searched(const StoreRecord& record) const;
  bool owns(const StoreRecord& record, const std::optional<SlotSet>& set) const;

  std::filesystem::path output_dir_;
  std::vector<std::filesystem::path> spill_dirs_;
  std::function<void(const std::string&)> note_;
  std::vector<Store> older_;  // the newest first
  std::optional<StoreRecord> own_;
  std::optional<std::string> lost_;
};

}  // namespace spillway
