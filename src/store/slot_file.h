// Space on disk for pages that do not fit in memory: uniform slots in one preallocated file for each spill directory.
//
// Files are reserved in full before anything starts and never grow while slots are in use, so a disk never fills in the
// middle of a run. Slots say where bytes lie; which version of what they hold is the caller's.
//
// A store is kept or not. The files of a kept one have names (slot_set.h), carry the id of the run, and hold commits
// (room checkpoint), so that another process can open them. Otherwise the files have no name once they are open:
// whatever ends the process, nothing is left behind.
//
// A slot has holders. Whoever allocates it is the first; a commit that names it holds it too. It is free again when the
// last one has released it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "store/disk_calls.h"
#include "store/io.h"
#include "store/run_id.h"
#include "store/slot_set.h"
#include "store/spill_file.h"

namespace spillway {

enum class SlotId : std::int32_t { none = -1 };

struct SlotStoreOptions {
  std::vector<std::filesystem::path> directories;
  std::int64_t slot_bytes = 0;  // a multiple of 4096: the page size
  std::int64_t slot_count = 0;
  std::int64_t reserved_slots = 0;  // of slot_count: for allocate_reserved alone
  bool keep = false;                // named files that outlive the process
  RunId run = {};                   // of a kept one; none: a new one
  DiskCalls* calls = nullptr;       // null: the kernel's
  // Of the slots, by directory: they are made and handed out in these proportions. Empty: evenly.
  std::vector<double> shares = {};
};

// The slots that hold one version of every bundle of a layout, each of them held.
struct SlotSnapshot {
  std::vector<SlotId> slots;        // of all bundles, one after the other
  std::vector<std::int32_t> first;  // by bundle, and one more

  void add(std::span<const SlotId> bundle);
  std::size_t bundles() const { return first.empty() ? 0 : first.size() - 1; }
  std::span<const SlotId> of(std::size_t bundle) const;
};

// The head of every slot file; see docs/formats.md. Slots follow it.
constexpr std::int64_t slot_file_head_bytes = std::int64_t{1} << 20;
constexpr std::int64_t slot_file_block_bytes = 4096;  // what is written in place at once
constexpr int superblock_places = 2;
constexpr std::int64_t superblock_offset_bytes(int place) { return (place + 1) * (std::int64_t{256} << 10); }

// Slots may be allocated, held, released and sealed from several threads; everything else is for one thread at a time.
class SlotStore {
 public:
  struct Location {
    int file = 0;  // of the engine
    std::int64_t offset_bytes = 0;
  };

  // Creates, locks and preallocates the files. When they are kept, their names and heads are durable on return. Throws
  // UserError when a directory is missing or not writable, DeviceError when it is full or fails; each names the
  // directory and, for space, what is needed and what is free. On failure nothing is left behind.
  explicit SlotStore(const SlotStoreOptions& options);
  // The same, attached to the engine.
  SlotStore(const SlotStoreOptions& options, IoEngine& engine) : SlotStore(options) { attach(engine); }
  // Opens the files of a kept store. Locks all of them before it reads any: a process that was killed may still have
  // writes under way. No slot is taken yet. With SpillAccess::read nothing is written, and flush does
  // nothing. Throws UserError when one is missing, is not of this run, or is in use by
  // another process (named where the system tells), DeviceError when its head does not verify.
  static std::unique_ptr<SlotStore> open(const SlotSet& set, DiskCalls* calls = nullptr,
                                         SpillAccess access = SpillAccess::write);
  ~SlotStore() = default;
  SlotStore(const SlotStore&) = delete;
  SlotStore& operator=(const SlotStore&) = delete;

  // Adds the files to an engine, which must be idle when the store ends. Once.
  void attach(IoEngine& engine);
  // Before the run: the proportions in which slots are made and handed out; positive, one for each file. An opened
  // store has those of the slots it was made with.
  void set_shares(std::vector<double> shares);
  // Before the run: makes room for at least this many slots, of which `reserved` are for allocate_reserved. Durable on
  // return. Throws DeviceError when a disk is full.
  void grow(std::int64_t slot_count, std::int64_t reserved_slots);

  // A free slot, held once, from the directories in the proportion of their shares as far as they have one. Its
  // contents are undefined until it is written. Without a free slot it waits while releases are promised, since these
  // give slots back; when nobody promises any, having none is a broken invariant, for the plan counts slots. Throws the
  // failure given to `stop`.
  SlotId allocate();
  // The same from the reserve; never waits.
  SlotId allocate_reserved();
  // Whether `slots` calls of allocate would return or throw at once.
  bool can_allocate(std::int64_t slots) const;
  void hold(std::span<const SlotId> slots);
  void release(SlotId slot);
  void release(std::span<const SlotId> slots);
  // Takes a slot that a commit names, when a store is opened: the first call makes it taken, later ones hold it.
  // `reserved`: it counts as one of the reserve.
  void adopt(SlotId slot, std::uint64_t checksum, bool reserved);

  // While a promise stands, allocate waits instead of failing. A pending commit promises, and so does whoever holds an
  // old commit for an export.
  void promise_release();
  void end_promise();
  // Ends all waiting in allocate, now and later, with this failure.
  void stop(std::exception_ptr failure);
  // Called, on the thread that released or stopped and under a lock, when can_allocate may have become true after it
  // was false: must not call back. Once this returns, the one set before is not called any more; empty: nobody.
  void on_release(std::function<void()> notify);

  // Notes the checksum of what is about to be written to the slot; the bytes beyond are undefined.
  void seal(SlotId slot, std::span<const std::byte> bytes);
  // Throws DeviceError, naming file and offset, when these are not the bytes that were sealed.
  void verify(SlotId slot, std::span<const std::byte> bytes) const;
  std::uint64_t checksum(SlotId slot) const;

  // Which file of the run a slot lies in and the how manieth it is there: what a commit names. SlotId::none when the
  // file has no such slot.
  std::pair<std::int32_t, std::int32_t> place_of(SlotId slot) const;
  SlotId slot_at(std::int32_t file, std::int32_t index) const;

  // Blocking transfers, for commits. `bytes` is a multiple of 4096 at 4096-aligned memory. Throws DeviceError; a read
  // that fails is tried once more before.
  void read_slot(SlotId slot, std::span<std::byte> into) const;
  void write_slot(SlotId slot, std::span<const std::byte> from);
  void read_block(std::int32_t file, std::int64_t offset_bytes, std::span<std::byte> into) const;
  void write_block(std::int32_t file, std::int64_t offset_bytes, std::span<const std::byte> from);
  // Makes all completed writes durable, on all files side by side. Throws DeviceError.
  void flush();

  Location location(SlotId slot) const;
  int descriptor(SlotId slot) const;  // of its file, which stays the store's
  std::int64_t slot_bytes() const { return slot_bytes_; }
  std::int64_t slot_count() const;
  std::int64_t free_count() const;
  bool kept() const { return kept_; }
  const RunId& run() const { return run_; }
  std::int32_t file_count() const { return static_cast<std::int32_t>(files_.size()); }
  std::filesystem::path path(std::int32_t file) const;  // the directory, when the file has no name

  // All files bypass the page cache.
  bool direct() const;
  // One line: "/tmp/a: 64 slots of 2.00 MiB, direct; /dev/shm: …, through the page cache: …".
  std::string describe() const;

  // The sentence for a request that failed, or that ended before its wanted bytes, of which this slot is the first.
  DeviceError failure(SlotId slot, IoRequest::Kind kind, const IoCompletion& completion) const;

 private:
  SlotStore(DiskCalls* calls, bool kept);

  void make_files(const SlotStoreOptions& options);
  void add_slots_to(std::int32_t file, std::int64_t count);
  std::int64_t slots_in(std::int32_t file) const { return slots_in_[static_cast<std::size_t>(file)]; }
  std::size_t checked(SlotId slot) const;
  std::int64_t available() const;  // to allocate
  SlotId take();
  void list_free();
  void release_one(std::size_t index);
  void notify_starved();

  DiskCalls* calls_;
  bool kept_;
  bool writes_ = true;
  RunId run_;
  std::int64_t slot_bytes_ = 0;
  std::vector<SpillFile> files_;
  std::vector<int> engine_files_;
  std::vector<std::int64_t> slots_in_;  // by file
  std::vector<double> shares_;          // by file, adding up to 1
  std::vector<std::uint64_t> checksums_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::vector<std::vector<std::int32_t>> free_;  // by file; the next one to hand out is the last
  std::vector<std::int32_t> holders_;            // by slot
  std::vector<bool> from_reserve_;               // by slot
  bool free_is_stale_ = false;                   // lists slots that were adopted
  std::int64_t free_count_ = 0;
  std::int64_t reserved_ = 0;
  std::int64_t reserved_used_ = 0;
  std::int64_t promises_ = 0;
  std::vector<double> credit_;    // by file: what its share gave it beyond the slots it handed out
  mutable bool starved_ = false;  // someone was told that there is none
  std::exception_ptr failure_;
  std::function<void()> notify_;
};

}  // namespace spillway
