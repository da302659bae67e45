// A disk for tests that keeps what was written in memory until it is flushed, and forgets any part of that when the
// power goes: whole writes, single sectors, later writes but not earlier ones.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <vector>

#include "store/disk_calls.h"
#include "store/io.h"

namespace spillway {

struct SimulatedFaults {
  std::int64_t crash_at = -1;  // the power goes before the operation with this number, counted from 0
  std::int64_t fail_at = -1;   // this operation, and all later ones if `fail_after`, fails…
  int error = 0;               // …with this errno
  bool fail_after = false;
  double short_share = 0;  // of blocking transfers that do less than they were asked to
};

// Stands between a store and its real files, which hold what is durable. Operations are writes and flushes. Both sides
// may be used from several threads; calls() and engines must not outlive the disk.
class SimulatedDisk {
 public:
  explicit SimulatedDisk(std::uint64_t seed, const SimulatedFaults& faults = {});
  ~SimulatedDisk();
  SimulatedDisk(const SimulatedDisk&) = delete;
  SimulatedDisk& operator=(const SimulatedDisk&) = delete;

  // From now on; operations are counted from 0 again.
  void set_faults(const SimulatedFaults& faults);
  DiskCalls& calls();
  // Requests end in any order, when somebody waits for them or at the end of the engine; until then a flush does not
  // cover them.
  std::unique_ptr<IoEngine> make_engine();

  // The power goes: of every write that was not flushed any subset of its sectors of 512 bytes reaches the file. From
  // now on every operation and read fails.
  void crash();
  bool crashed() const;
  // So far.
  std::int64_t operations() const;

 private:
  class Calls;
  class Engine;
  struct Write {
    std::int64_t offset_bytes = 0;
    std::vector<std::byte> bytes;
    std::uint64_t number = 0;
    bool complete = false;
  };
  // A real file, by device and inode: descriptors come and go.
  struct File {
    int descriptor = -1;  // of our own, through the page cache: sectors are smaller than direct I/O allows
    std::vector<Write> writes;
  };

  File& file_of(int descriptor);
  int begin_operation();  // errno or 0
  void crash_locked();
  void apply(const File& file, std::int64_t offset_bytes, std::span<const std::byte> bytes);
  std::int64_t read(int descriptor, std::int64_t offset_bytes, std::span<std::byte> into);
  std::int64_t write(int descriptor, std::int64_t offset_bytes, std::span<const std::byte> from, bool complete,
                     std::uint64_t& number);
  void complete(int descriptor, std::uint64_t number);
  int flush(int descriptor);
  std::size_t some_of(std::size_t bytes);
  std::size_t any_below(std::size_t count);

  mutable std::mutex mutex_;
  std::mt19937_64 random_;
  SimulatedFaults faults_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, File> files_;
  std::int64_t operations_ = 0;
  std::uint64_t next_write_ = 0;
  bool crashed_ = false;
  std::unique_ptr<Calls> calls_;
};

}  // namespace spillway
