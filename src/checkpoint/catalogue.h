// The commits that a set of slot files holds, and how one becomes the newest.
//
// Each file has two places for a superblock. A superblock names all retained commits: for each its generation, and
// where its manifest begins. It is written in place, on all files, to the place that does not hold the newest; so at
// any moment one place of every file has a catalogue that was durable everywhere, whatever happens to the other. A
// catalogue counts when the same one verifies on all files; the one with the highest generation is the newest.
//
// The protocol of a commit, each line only when the one before is complete (CommitPoint names the gaps):
//   1. all data of the snapshot is written       3. the manifest is written to free slots    5. superblocks are written
//   2. all files are flushed, side by side       4. all files are flushed                    6. all files are flushed
//   7. slots that only a commit no longer retained named are released
// docs/techniques/checkpoint.md has the proof.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "store/slot_file.h"

namespace spillway {

// One retained commit.
struct CommitEntry {
  std::uint64_t generation = 0;  // grows with every catalogue ever written to these files
  std::int64_t step = 0;
  std::int64_t unix_seconds = 0;  // for people; nothing depends on the clock
  std::int64_t manifest_bytes = 0;
  std::uint64_t manifest_checksum = 0;
  std::int32_t file = 0;  // the slot in which the manifest begins
  std::int32_t index = 0;
  bool operator==(const CommitEntry&) const = default;
};

// As many as a superblock has room for.
constexpr std::int64_t most_retained_commits = 64;

struct Catalogue {
  std::uint64_t generation = 0;      // 0: nothing was ever committed
  std::vector<CommitEntry> commits;  // the newest last
  bool operator==(const Catalogue&) const = default;
};

// The gaps of the protocol, in order; `part` counts the files or slots of a point that has several.
enum class CommitPoint : std::uint8_t {
  begun,
  data_flushed,
  manifest_slot_written,  // once for each slot
  manifest_written,
  manifest_flushed,
  superblock_written,  // once for each file
  superblocks_written,
  superblocks_flushed,  // durable from here on
  released,
};
std::string_view name_of(CommitPoint point);

// What opening a kept store found.
struct OpenedCatalogue {
  Catalogue catalogue;                   // retained commits whose manifests verify; may be empty
  std::vector<std::string> passed_over;  // a sentence for each newer thing that does not verify, the newest first
};

// Reads the newest catalogue that verifies on all files and the manifests it names, and adopts their slots, so that
// they stay until the commits are dropped. Throws DeviceError only when a file cannot be read at all.
OpenedCatalogue read_catalogue(SlotStore& slots);

// Reads and checks the manifest of one commit. Throws DeviceError, naming the file and what does not verify.
Manifest read_manifest(const SlotStore& slots, const CommitEntry& entry);

// A commit to be made.
struct CommitRequest {
  SlotSnapshot snapshot;  // its slots are held; the catalogue takes them over
  CommitFacts facts;
};

struct CommitReport {
  CommitEntry entry;
  std::int64_t manifest_bytes = 0;
  double seconds = 0;        // from submit to durable
  double flush_seconds = 0;  // of these, waiting for flushes
};

struct CommitterOptions {
  std::int64_t retained_commits = 1;
  // For crash tests; called on the commit thread. What it throws ends the committer as a failing disk would.
  std::function<void(CommitPoint point, int part)> on_point = {};
  // After each commit, on the commit thread.
  std::function<void(const CommitReport&)> on_durable = {};
};

class CommitLease;

// Makes commits in the background, one at a time, on a thread of its own that sleeps when it has nothing to do.
// All calls may come from any thread. A flush or write that fails ends it: the last durable commit stands, later calls
// throw that failure, and the store stops handing out slots (SlotStore::stop).
class Committer {
 public:
  // `state`, `layout` and `slots` outlive it. `opened` is what read_catalogue found, or empty for new files.
  Committer(const State& state, const Layout& layout, SlotStore& slots, Catalogue opened,
            const CommitterOptions& options);
  ~Committer();  // waits for the commit under way; its failure is lost, so call wait() first
  Committer(const Committer&) = delete;
  Committer& operator=(const Committer&) = delete;

  // Starts making the commit durable and returns; waits for the one before. All writes to the snapshot's slots must be
  // complete.
  void submit(CommitRequest request);
  // A commit is under way: a further submit would wait.
  bool busy() const;
  // Returns when no commit is under way. Throws the failure of one.
  void wait();
  // Throws the failure, if there was one; never waits.
  void check() const;

  // The retained commits, all durable, the newest last.
  std::vector<CommitEntry> commits() const;
  // Keeps a retained commit's slots from being reused, whatever is retained later, until the lease ends. Writers may
  // have to wait for it where the store has no slots to spare (commit_slots_for counts `leases`).
  std::unique_ptr<CommitLease> lease(std::uint64_t generation);
  // Drops all retained commits but the newest `keep` (at least 1), durably; waits for a commit under way.
  void prune(std::int64_t keep);
  // Drops the retained commits that are newer than this one, durably: the run goes on from it instead.
  void forget_after(std::uint64_t generation);
};

// A commit that stays readable. Ends its hold at the end of its scope; the committer must outlive it.
class CommitLease {
 public:
  virtual ~CommitLease() = default;
  virtual const CommitEntry& entry() const = 0;
};

}  // namespace spillway
