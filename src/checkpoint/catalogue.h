// The commits that a set of slot files holds, and how one becomes the newest.
//
// Each file has two places for a superblock. A superblock names all retained commits: for each its generation, and
// where its manifest begins. It is written in place, on all files, to the place that does not hold the newest; so at
// any moment one place of every file has a catalogue that was durable everywhere, whatever happens to the other. A
// catalogue counts when the same one verifies on all files; the one with the highest generation is the newest.
//
// The protocol of a commit, each line only when the one before is complete (CommitPoint names the gaps):
//   1. all data of the snapshot has been written   4. superblocks are written, to the older place of every file
//   2. the manifest is written to free slots       5. all files are flushed: the commit is durable
//   3. all files are flushed, side by side         6. what only commits no longer retained named is released
// docs/techniques/checkpoint.md has the proof.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
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

// A commit with what it holds.
struct RetainedCommit {
  CommitEntry entry;
  std::vector<SlotId> slots;  // of its data and of its manifest
};

// What opening a kept store found.
struct OpenedCatalogue {
  std::uint64_t last_generation = 0;     // the highest seen, in whatever state
  int place = 1;                         // of the superblocks that these commits come from; the next go to the other
  std::vector<RetainedCommit> commits;   // those whose manifests verify, the newest last; their slots are held
  std::vector<std::string> passed_over;  // a sentence for each thing that does not verify, the newest first
  // A commit was durable once: there is more than an interrupted first commit leaves.
  bool had_commits = false;
};

// Reads the newest catalogue that verifies on all files and the manifests it names, and adopts their slots, so that
// they stay until the commits are dropped. When none of its manifests verifies, the older catalogue is tried. Throws
// DeviceError only when a superblock cannot be read at all.
OpenedCatalogue read_catalogue(SlotStore& slots);

// Reads and checks the manifest of one commit. Throws DeviceError, naming the file and what does not verify.
Manifest read_manifest(const SlotStore& slots, const CommitEntry& entry);

}  // namespace spillway
