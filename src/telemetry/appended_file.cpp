#include "telemetry/appended_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace spillway {

AppendedFile::AppendedFile(std::filesystem::path path, Begin begin) : path_(std::move(path)) {
  const int exclusive = begin == Begin::new_file ? O_EXCL : 0;
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | exclusive, 0644);
  if (descriptor_ < 0) throw DeviceError("{}: cannot be written ({})", path_.string(), errno_text(errno));
}

AppendedFile::~AppendedFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void AppendedFile::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0)
      throw DeviceError("{}: writing failed ({}); with that mended, the same command goes on", path_.string(),
                        errno_text(errno));
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::optional<std::int64_t> AppendedFile::bytes() const {
  struct stat file = {};
  if (::fstat(descriptor_, &file) != 0 || !S_ISREG(file.st_mode)) return std::nullopt;
  return file.st_size;
}

void AppendedFile::cut(std::int64_t bytes) {
  if (::ftruncate(descriptor_, bytes) != 0)
    throw DeviceError("{}: cannot be cut ({})", path_.string(), errno_text(errno));
}

}  // namespace spillway
