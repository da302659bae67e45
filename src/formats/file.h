// An open file with the errors of this project: a name the user gave that is missing or of the wrong kind is a
// UserError, a failing disk a DeviceError; both name the path and the reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

namespace spillway {

// Move-only; closes at the end of its scope. Reads and writes at offsets, so that one File may be read by several
// threads.
class File {
 public:
  File() = default;
  static File open_to_read(const std::filesystem::path& path);  // a regular file; UserError otherwise
  // Makes the file, or empties it. DeviceError when that fails.
  static File open_to_write(const std::filesystem::path& path);
  File(File&& other) noexcept : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { close(); }

  bool is_open() const { return descriptor_ >= 0; }
  const std::filesystem::path& path() const { return path_; }
  std::int64_t size() const;

  // Reads exactly `into.size()` bytes; DeviceError when the file ends before.
  void read(std::int64_t offset, std::span<std::byte> into) const;
  // Reads up to `into.size()` bytes; fewer only at the end of the file.
  std::int64_t read_some(std::int64_t offset, std::span<std::byte> into) const;
  void write(std::int64_t offset, std::span<const std::byte> from);
  void resize(std::int64_t bytes);
  // Data and size are on the disk when it returns.
  void sync();
  // Lets the kernel forget cached pages of this range (0 bytes: to the end); dirty pages stay until synced.
  void drop_cache(std::int64_t offset, std::int64_t bytes) const;
  void close();

 private:
  File(std::filesystem::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  std::filesystem::path path_;
  int descriptor_ = -1;
};

// A whole small file; UserError when it is larger than `limit_bytes`.
std::string read_small_file(const std::filesystem::path& path, std::int64_t limit_bytes);

// The absolute path, without `.`, `..` and a slash at its end: "out/checkpoint-4/" has the name "checkpoint-4".
std::filesystem::path plain_path(const std::filesystem::path& path);

// Makes the entries of a folder durable after a rename.
void sync_folder(const std::filesystem::path& folder);

}  // namespace spillway
