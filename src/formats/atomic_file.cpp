#include "formats/atomic_file.h"

#include <span>
#include <system_error>

#include "base/error.h"
#include "formats/file.h"

namespace spillway {

std::filesystem::path temporary_name(const std::filesystem::path& path) {
  return path.parent_path() / fmt::format(".{}.incomplete", path.filename().string());
}

TemporaryFile::TemporaryFile(std::filesystem::path path)
    : path_(std::move(path)), file_(File::open_to_write(temporary_name(path_))) {}

TemporaryFile::~TemporaryFile() {
  if (!file_.is_open()) return;
  std::error_code ignored;  // nothing to be done about a file that cannot be removed; the next writer reuses it
  std::filesystem::remove(file_.path(), ignored);
}

void TemporaryFile::keep() {
  file_.sync();
  std::error_code error;
  std::filesystem::rename(file_.path(), path_, error);
  if (error) throw DeviceError("cannot rename {} to {}: {}", file_.path().string(), path_.string(), error.message());
  file_.close();
  sync_folder(path_.parent_path());
}

void write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  TemporaryFile temporary(path);
  temporary.file().write(0, std::as_bytes(std::span(text)));
  temporary.keep();
}

}  // namespace spillway
