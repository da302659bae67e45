#include "session/known_stores.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"
#include "checkpoint/committer.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

bool same_folder(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error);
}

}  // namespace

void KnownStores::read() {
  for (StoreRecord& record : read_store_records(output_dir_)) {
    Store store;
    store.record = std::move(record);
    older_.push_back(std::move(store));
  }
}

std::vector<fs::path> KnownStores::searched(const StoreRecord& record) const {
  return directories_to_search(record, output_dir_, spill_dirs_);
}

bool KnownStores::owns(const StoreRecord& record, const std::optional<SlotSet>& set) const {
  std::error_code error;
  if (record.folder.empty() || same_folder(record.folder, output_dir_) || !fs::exists(record.folder, error))
    return true;
  return set && std::all_of(set->paths.begin(), set->paths.end(), [&](const fs::path& path) {
           return path.empty() || same_folder(path.parent_path(), output_dir_);
         });
}

void KnownStores::locate(Store& store) const {
  store.set = find_slot_set(store.record, searched(store.record));
  store.owned = owns(store.record, store.set);
}

void KnownStores::open() {
  for (Store& store : older_) {
    locate(store);
    if (!store.record.whole) continue;
    require_complete(store.record, store.set, searched(store.record), output_dir_);
    store.slots = open_store(*store.set);
    store.catalogue = read_catalogue(*store.slots);
    for (const std::string& sentence : store.catalogue.passed_over) note_("passed over " + sentence);
  }
  drop([](const Store& store) { return !store.record.whole; });
}

bool KnownStores::is_left(const Store& store, const RetainedCommit& commit, const RunBranches& branches) {
  try {
    const Manifest manifest = read_manifest(*store.slots, commit.entry);
    return !branches.hold(parse_run_state(manifest.facts.run, store.slots->path(0).string()));
  } catch (const Error&) {  // not known; it is what it was
    return false;
  }
}

std::optional<FoundCommit> KnownStores::newest_commit(const RunBranches& branches) {
  for (Store& store : older_) {
    std::vector<std::string> passed_over;
    bool left = false;
    auto commit = spillway::newest_commit(store.slots, store.catalogue, passed_over, [&](const FoundCommit& found) {
      if (!branches.hold(found.run)) {
        left = true;
        note_(fmt::format("passed over the commit of step {}: {}", found.run.step, why_left));
        return false;
      }
      note_(fmt::format("checking the {} of the commit of step {}", format_bytes(found.manifest.data_bytes()),
                        found.run.step));
      return true;
    });
    for (const std::string& sentence : passed_over) note_("passed over " + sentence);
    if (commit) return commit;
    if (store.catalogue.had_commits && !left) {
      lost_ = fmt::format("no commit in {} verifies any more", store.slots->path(0).string());
      const auto& why = passed_over.empty() ? store.catalogue.passed_over : passed_over;
      if (!why.empty()) *lost_ += fmt::format(" ({})", why.front());
    }
  }
  return std::nullopt;
}

bool KnownStores::serves(const FoundCommit& commit) const {
  const auto store =
      std::find_if(older_.begin(), older_.end(), [&](const Store& s) { return s.slots == commit.slots; });
  if (store == older_.end() || !store->owned || store->set->paths.size() != spill_dirs_.size()) return false;
  for (std::size_t i = 0; i < spill_dirs_.size(); ++i) {
    if (!same_folder(store->set->paths[i].parent_path(), spill_dirs_[i])) return false;
  }
  return true;
}

KnownStores::Store KnownStores::take(const FoundCommit& commit) {
  const auto at = std::find_if(older_.begin(), older_.end(), [&](const Store& s) { return s.slots == commit.slots; });
  SPILLWAY_CHECK(at != older_.end(), "a commit of {} stores that are not open", older_.size());
  Store store = std::move(*at);
  older_.erase(at);
  store.record.directories = spill_dirs_;
  own_ = store.record;
  write_records();
  return store;
}

std::shared_ptr<SlotStore> KnownStores::make(SlotStoreOptions options) {
  drop([](const Store& store) { return store.catalogue.commits.empty() && !store.catalogue.had_commits; });
  options.run = RunId::random();
  own_ = StoreRecord{options.run, options.directories, {}, /*whole=*/false};
  write_records();
  std::shared_ptr<SlotStore> slots;
  try {
    slots = std::make_shared<SlotStore>(options);
  } catch (const Error&) {
    own_.reset();
    write_records();
    throw;
  }
  own_->whole = true;
  write_records();
  return slots;
}

void KnownStores::tell_that_it_stays(const Store& store) const {
  note_(fmt::format("the commits in {} belong to {} and stay", store.set->paths.front().parent_path().string(),
                    store.record.folder.string()));
}

// The records say so before a file goes, and are gone after it: a kill between leaves neither a record of files that
// are missing, nor files that no record names.
void KnownStores::drop(const std::function<bool(const Store&)>& which) {
  if (std::none_of(older_.begin(), older_.end(), which)) return;
  std::vector<SlotSet> sets;
  for (Store& store : older_) {
    if (!which(store)) continue;
    store.slots = nullptr;  // unlocks
    if (store.set && store.owned) {
      store.record.whole = false;
      sets.push_back(*store.set);
    } else if (store.set) {
      tell_that_it_stays(store);
    }
  }
  std::vector<Store> left;
  std::copy_if(older_.begin(), older_.end(), std::back_inserter(left), [&](const Store& s) { return !which(s); });
  if (!sets.empty()) write_records();
  for (const SlotSet& set : sets) remove_slot_set(set);
  older_ = std::move(left);
  write_records();
}

void KnownStores::drop_older() {
  drop([](const Store&) { return true; });
}

void KnownStores::drop_own() {
  if (!own_) return;
  const RunId run = own_->run;
  older_.push_back({*own_, std::nullopt, nullptr, {}, true});
  own_.reset();
  locate(older_.back());
  drop([&](const Store& store) { return store.record.run == run; });
}

void KnownStores::drop_all() {
  if (own_) {
    older_.push_back({*own_, std::nullopt, nullptr, {}, true});
    own_.reset();
  }
  for (Store& store : older_) {
    if (!store.set) locate(store);
  }
  drop_older();
}

bool KnownStores::hold_commit_of(const RunBranches& branches) const {
  return std::any_of(older_.begin(), older_.end(), [&](const Store& store) {
    const auto& commits = store.catalogue.commits;
    return std::any_of(commits.begin(), commits.end(),
                       [&](const RetainedCommit& commit) { return !is_left(store, commit, branches); });
  });
}

// What was left are the newest of a store: a run that goes on in one forgets what is newer.
void KnownStores::prune(std::int64_t keep, const RunBranches& branches, const Commits& removing) {
  std::int64_t to_keep = keep;
  for (Store& store : older_) {
    if (!store.owned) {
      if (keep > 0) tell_that_it_stays(store);
      continue;
    }
    std::vector<RetainedCommit>& commits = store.catalogue.commits;
    auto end = commits.end();
    while (end != commits.begin() && is_left(store, *std::prev(end), branches)) --end;
    const auto begin = end - std::min(to_keep, static_cast<std::int64_t>(end - commits.begin()));
    to_keep -= end - begin;
    for (auto commit = commits.end(); commit != commits.begin();) {
      --commit;
      if (commit < begin || commit >= end) removing(store, commit->entry);
    }
    if (begin != end) {
      Committer committer(State(), Layout(), *store.slots, store.catalogue, {});
      committer.forget_after(std::prev(end)->entry.generation);
      committer.prune(end - begin);
    }
    commits = std::vector<RetainedCommit>(begin, end);
  }
  drop([keep](const Store& store) { return store.owned ? store.catalogue.commits.empty() : keep == 0; });
}

void KnownStores::write_records() const {
  std::vector<StoreRecord> records;
  if (own_) {
    records.push_back(*own_);
    records.back().folder = output_dir_;
  }
  for (const Store& store : older_) {
    records.push_back(store.record);
    if (store.owned) records.back().folder = output_dir_;
  }
  write_store_records(output_dir_, records);
}

}  // namespace spillway
