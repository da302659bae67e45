// Space on disk for pages that do not fit in memory: uniform slots in one preallocated file for each spill directory.
//
// Files are reserved in full before anything starts, so a disk never fills in the middle of a run. Slots say where
// bytes lie; which version of what they hold is the caller's. In this version a file has no name once it is open:
// whatever ends the process, nothing is left behind.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "store/io.h"

namespace spillway {

enum class SlotId : std::int32_t { none = -1 };

struct SlotStoreOptions {
  std::vector<std::filesystem::path> directories;  // the slots are spread evenly over them
  std::int64_t slot_bytes = 0;                     // a multiple of 4096: the page size
  std::int64_t slot_count = 0;
};

// Calls on one store come from one thread at a time.
class SlotStore {
 public:
  struct Location {
    int file = 0;  // of the engine
    std::int64_t offset_bytes = 0;
  };

  // Creates, locks and preallocates the files and adds them to the engine, which must be idle when the store ends.
  // Throws UserError when a directory is missing or not writable, DeviceError when it is full or fails; each names the
  // directory and, for space, what is needed and what is free.
  SlotStore(const SlotStoreOptions& options, IoEngine& engine);
  SlotStore(const SlotStore&) = delete;
  SlotStore& operator=(const SlotStore&) = delete;

  // A free slot, from the directories in turn. The plan counts slots, so having none left is a broken invariant. Its
  // contents are undefined until it is written.
  SlotId allocate();
  void release(SlotId slot);

  Location location(SlotId slot) const;
  std::int64_t slot_bytes() const { return slot_bytes_; }
  std::int64_t slot_count() const { return static_cast<std::int64_t>(taken_.size()); }
  std::int64_t free_count() const { return free_count_; }

  // All files bypass the page cache.
  bool direct() const;
  // One line: "/tmp/a: 64 slots of 2.00 MiB, direct; /dev/shm: …, through the page cache: …".
  std::string describe() const;

  // The sentence for a request on this slot that failed, or that ended before slot_bytes.
  DeviceError failure(SlotId slot, IoRequest::Kind kind, const IoCompletion& completion) const;

 private:
  class Descriptor {
   public:
    Descriptor() = default;
    explicit Descriptor(int value) : value_(value) {}
    ~Descriptor();
    Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
      std::swap(value_, other.value_);
      return *this;
    }
    int get() const { return value_; }

   private:
    int value_ = -1;
  };

  struct File {
    std::filesystem::path directory;
    Descriptor descriptor;
    int engine_file = -1;
    bool direct = false;
    std::string note;                // why not direct, or what to know of the file system
    std::vector<std::int32_t> free;  // the next one to hand out is the last
  };

  void open_file(File& file) const;
  const File& file_of(SlotId slot) const;

  std::int64_t slot_bytes_ = 0;
  std::int64_t free_count_ = 0;
  std::size_t turn_ = 0;
  std::vector<File> files_;
  std::vector<bool> taken_;
};

}  // namespace spillway
