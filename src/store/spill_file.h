// One file of slots: made, locked, reserved and opened, with the errors of each. Every error names the directory or the
// file and what to do.
//
// What file systems need. All: space is reserved by fallocate and never grows while slots are in use, so that a flush
// of data (fdatasync) suffices; the first write into reserved space changes metadata, which fdatasync includes, since
// the data could not be found without it. A new file's name is durable when its directory has been synced, once. ext4
// and xfs: overwriting is in place. btrfs: copy-on-write would move every block at each write and need space beyond
// what was reserved, so the file is marked no-copy-on-write while it is empty; that turns its checksums off, ours
// remain.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "store/disk_calls.h"

namespace spillway {

// Another process has the file.
class FileInUse : public UserError {
 public:
  using UserError::UserError;
};

// What an existing file is opened for. Any number of readers may have it at once; a writer has it alone.
enum class SpillAccess : std::uint8_t { write, read };

// Move-only. Until `stay` is called a file that was made with a name is removed at the end of its scope.
class SpillFile {
 public:
  // Makes, locks and reserves a file without a name.
  static SpillFile make_unnamed(const std::filesystem::path& directory, std::int64_t bytes);
  // Makes, locks and reserves a file with this name, which no file has.
  static SpillFile make(const std::filesystem::path& directory, const std::string& name, std::int64_t bytes);
  // Opens and locks; FileInUse names the process where the system tells. To read it suffices to be allowed to.
  static SpillFile open(const std::filesystem::path& path, SpillAccess access = SpillAccess::write);

  SpillFile(SpillFile&& other) noexcept { *this = std::move(other); }
  SpillFile& operator=(SpillFile&& other) noexcept;
  ~SpillFile();

  // Turns direct I/O on where the file system takes it; otherwise note() says why not.
  void turn_direct();
  // Reserves space up to this size.
  void reserve(std::int64_t bytes) const;
  // Makes what was written and the name durable.
  void settle(DiskCalls& calls) const;
  void stay() { remove_at_end_ = false; }
  // Removes the name, durably.
  void remove() const;

  // All of `into` or `from`; DeviceError when that fails or the file ends before. A read that fails is tried once more.
  void read(DiskCalls& calls, std::int64_t offset_bytes, std::span<std::byte> into) const;
  void write(DiskCalls& calls, std::int64_t offset_bytes, std::span<const std::byte> from) const;
  void flush(DiskCalls& calls) const;

  int descriptor() const { return descriptor_; }
  std::int64_t size_bytes() const;
  const std::filesystem::path& directory() const { return directory_; }
  const std::filesystem::path& path() const { return path_; }  // empty: no name
  // "the slot file '…'" or "the spill file in '…'".
  std::string name() const;
  bool direct() const { return direct_; }
  const std::string& note() const { return note_; }

 private:
  SpillFile() = default;
  void lock(SpillAccess access) const;

  std::filesystem::path directory_;
  std::filesystem::path path_;
  int descriptor_ = -1;
  bool remove_at_end_ = false;
  bool direct_ = false;
  std::string note_;  // why not direct, or what to know of the file system
};

// Free space for unprivileged users, or -1 when the file system does not say.
std::int64_t free_bytes_of(const std::filesystem::path& directory);

// UserError unless this is a directory.
void check_spill_directory(const std::filesystem::path& directory);

}  // namespace spillway
