#include "formats/atomic_file.h"

#include <span>
#include <system_error>

#include "base/error.h"
#include "formats/file.h"

namespace spillway {

std::filesystem::path temporary_name(const std::filesystem::path& path) {
  return path.parent_path() / fmt::format(".{}.incomplete", path.filename().string());
}

std::filesystem::path file_to_replace(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  constexpr int most_links = 32;
  fs::path target = path;
  std::error_code error;
  for (int links = 0; links < most_links && fs::is_symlink(fs::symlink_status(target, error)); ++links) {
    const fs::path next = fs::read_symlink(target, error);
    if (error) break;
    target = next.is_absolute() ? next : target.parent_path() / next;
  }
  const fs::file_status status = fs::symlink_status(target, error);
  if (fs::exists(status) && !fs::is_regular_file(status))
    throw UserError("{}: there is something that is not a file; name another", path.string());
  return target;
}

TemporaryFile::TemporaryFile(const std::filesystem::path& path)
    : path_(file_to_replace(path)), file_(File::open_to_write(temporary_name(path_))) {}

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
