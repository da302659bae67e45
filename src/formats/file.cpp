#include "formats/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/bytes.h"
#include "base/error.h"

namespace spillway {
namespace {

std::string reason() {
  const bool is_full = errno == ENOSPC || errno == EDQUOT;
  return fmt::format("{}{}", errno_text(errno), is_full ? "; free some space there" : "");
}

[[noreturn]] void fail(std::string_view what, const std::filesystem::path& path) {
  throw DeviceError("{} {}: {}", what, path.string(), reason());
}

struct stat status_of(int descriptor, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) fail("cannot look at", path);
  return status;
}

// The kernel moves at most this many bytes a call.
constexpr std::size_t call_limit_bytes = std::size_t{1} << 30;

}  // namespace

File File::open_to_read(const std::filesystem::path& path) {
  // Without O_NONBLOCK, opening a named pipe would wait for a writer.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    if (errno == EIO) fail("cannot open", path);
    throw UserError("cannot open {}: {}", path.string(), reason());
  }
  File file(path, descriptor);
  if (!S_ISREG(status_of(descriptor, path).st_mode)) throw UserError("{} is not a regular file", path.string());
  return file;
}

File File::open_to_write(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) fail("cannot create", path);
  return {path, descriptor};
}

File& File::operator=(File&& other) noexcept {
  if (this != &other) {
    close();
    path_ = std::move(other.path_);
    descriptor_ = std::exchange(other.descriptor_, -1);
  }
  return *this;
}

std::int64_t File::size() const { return status_of(descriptor_, path_).st_size; }

std::int64_t File::read_some(std::int64_t offset, std::span<std::byte> into) const {
  std::size_t done = 0;
  while (done < into.size()) {
    const auto part = ::pread(descriptor_, into.data() + done, std::min(into.size() - done, call_limit_bytes),
                              offset + static_cast<std::int64_t>(done));
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) fail("cannot read", path_);
    if (part == 0) break;
    done += static_cast<std::size_t>(part);
  }
  return static_cast<std::int64_t>(done);
}

void File::read(std::int64_t offset, std::span<std::byte> into) const {
  const std::int64_t done = read_some(offset, into);
  if (done != static_cast<std::int64_t>(into.size())) {
    throw DeviceError("{} ends at byte {}, {} bytes early: it was truncated while in use", path_.string(),
                      offset + done, static_cast<std::int64_t>(into.size()) - done);
  }
}

void File::write(std::int64_t offset, std::span<const std::byte> from) {
  std::size_t done = 0;
  while (done < from.size()) {
    const auto part = ::pwrite(descriptor_, from.data() + done, std::min(from.size() - done, call_limit_bytes),
                               offset + static_cast<std::int64_t>(done));
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) fail("cannot write", path_);
    done += static_cast<std::size_t>(part);
  }
}

void File::resize(std::int64_t bytes) {
  if (::ftruncate(descriptor_, bytes) != 0) fail("cannot resize", path_);
}

void File::sync() {
  if (::fdatasync(descriptor_) != 0) fail("cannot flush", path_);
}

void File::drop_cache(std::int64_t offset, std::int64_t bytes) const {
  // Advice only: a file system that does not know it keeps its cache.
  static_cast<void>(::posix_fadvise(descriptor_, offset, bytes, POSIX_FADV_DONTNEED));
}

void File::close() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

std::string read_small_file(const std::filesystem::path& path, std::int64_t limit_bytes) {
  const File file = File::open_to_read(path);
  const std::int64_t bytes = file.size();
  if (bytes > limit_bytes) {
    throw UserError("{} has {} bytes, more than the {} such a file may have", path.string(), bytes,
                    format_bytes(limit_bytes));
  }
  std::string text(static_cast<std::size_t>(bytes), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

std::filesystem::path plain_path(const std::filesystem::path& path) {
  const std::filesystem::path plain = std::filesystem::absolute(path).lexically_normal();
  return plain.has_filename() ? plain : plain.parent_path();
}

void sync_folder(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder.empty() ? "." : folder;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail("cannot open", path);
  const int result = ::fsync(descriptor);
  const int code = errno;
  ::close(descriptor);
  // Some file systems have no fsync of folders; their renames are as durable as they get.
  if (result != 0 && code != EINVAL && code != ENOTSUP) {
    errno = code;
    fail("cannot flush", path);
  }
}

}  // namespace spillway
