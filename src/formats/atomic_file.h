// Files that are either the old one or the new one, also after a crash.
#pragma once

#include <filesystem>
#include <string_view>

#include "formats/file.h"

namespace spillway {

// The file that is to be written or replaced at `path`: through symbolic links, whose targets may not exist yet. Throws
// UserError when there is something else than a file: replacing a device or a pipe would destroy it.
std::filesystem::path file_to_replace(const std::filesystem::path& path);

// Writes `text` beside `path` under a temporary name, makes it durable, and renames it. On failure (DeviceError) the
// file at `path` is as it was and the temporary one is gone.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

// The temporary name used for `path`, in the same folder; the next writer of `path` reuses it.
std::filesystem::path temporary_name(const std::filesystem::path& path);

// A file under its temporary name until keep(). Without keep() it is removed at the end of its scope.
class TemporaryFile {
 public:
  // Of what file_to_replace finds. Throws as that does.
  explicit TemporaryFile(const std::filesystem::path& path);
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile();

  const std::filesystem::path& final_path() const { return path_; }
  File& file() { return file_; }
  // Makes the data durable, renames the file to its final path, makes the name durable, and closes the file.
  void keep();

 private:
  std::filesystem::path path_;
  File file_;
};

}  // namespace spillway
