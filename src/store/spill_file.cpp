#include "store/spill_file.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>

#include "base/bytes.h"
#include "base/error.h"
#include "store/aligned_buffer.h"
#include "store/io_parts.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr int most_names = 1000;

[[noreturn]] void fail_create(const fs::path& directory, int error) {
  if (error == EROFS || error == EACCES || error == EPERM || error == ENOENT) {
    throw UserError(
        "spill_dir: the directory '{}' is not writable ({}): change its permissions, or name another with "
        "--spill-dir",
        directory.string(), errno_text(error));
  }
  throw DeviceError("creating a file in the spill directory '{}' failed ({}): name another with --spill-dir",
                    directory.string(), errno_text(error));
}

// Buffered at first, since direct I/O is asked for once the space is there.
int create(const fs::path& path) { return ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600); }

[[noreturn]] void fail_full(const fs::path& directory, std::int64_t need_bytes, int error) {
  const std::int64_t free = free_bytes_of(directory);
  throw DeviceError(
      "the spill directory '{}' needs {} and has {} free ({}): free some space there, name another or one more "
      "directory with --spill-dir, or give more --memory",
      directory.string(), format_bytes(need_bytes), free >= 0 ? format_bytes(free) : "an unknown amount",
      errno_text(error));
}

// The limit on file sizes is looked at first: exceeding it would end the process by a signal.
void check_file_limit(const fs::path& directory, std::int64_t need_bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const auto most_bytes = static_cast<std::int64_t>(limit.rlim_cur);
  if (need_bytes <= most_bytes) return;
  throw DeviceError(
      "the spill file in '{}' needs {} and this process may write files of at most {}: raise 'ulimit -f', name one "
      "more directory with --spill-dir, or give more --memory",
      directory.string(), format_bytes(need_bytes), format_bytes(most_bytes));
}

// Only for an empty file. Other file systems do not know the flag, or do not need it.
void turn_copy_on_write_off(int descriptor) {
  int flags = 0;
  if (ioctl(descriptor, FS_IOC_GETFLAGS, &flags) != 0) return;
  flags |= FS_NOCOW_FL;
  ioctl(descriptor, FS_IOC_SETFLAGS, &flags);
}

// Direct reads are tried: some file systems accept the flag and refuse the reads, or want larger units. Returns why it
// is not possible, or nothing.
std::string try_direct(int descriptor) {
  const int flags = fcntl(descriptor, F_GETFL);
  if (fcntl(descriptor, F_SETFL, flags | O_DIRECT) != 0) return errno_text(errno);
  const AlignedBuffer buffer(direct_alignment);
  ssize_t got = -1;
  do {
    got = pread(descriptor, buffer.span().data(), buffer.span().size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got >= 0) return "";
  const int error = errno;
  fcntl(descriptor, F_SETFL, flags);
  return errno_text(error);
}

std::uint64_t file_system_of(int descriptor) {
  struct statfs info {};
  return fstatfs(descriptor, &info) == 0 ? static_cast<std::uint64_t>(info.f_type) : 0;
}

// The process that holds a lock on this file, in words, from /proc/locks; empty when it does not tell.
std::string holder_of(int descriptor) {
  struct stat info {};
  if (fstat(descriptor, &info) != 0) return "";
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream fields(line);
    std::string number, kind, advisory, mode, file;
    long process = 0;
    fields >> number >> kind >> advisory >> mode >> process >> file;
    // Device numbers differ from stat's on some file systems; the inode does not.
    if (kind == "FLOCK" && process > 0 && file.ends_with(fmt::format(":{}", info.st_ino))) {
      return fmt::format(" by process {}", process);
    }
  }
  return "";
}

void sync_directory(const fs::path& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int error = descriptor < 0 || fsync(descriptor) != 0 ? errno : 0;
  if (descriptor >= 0) close(descriptor);
  if (error != 0) {
    throw DeviceError("making the names in '{}' durable failed ({}): check the disk, or name another directory",
                      directory.string(), errno_text(error));
  }
}

// `step` transfers from an offset and returns bytes or -errno, after which it is tried again at most `retries` times.
template <typename Step>
std::pair<std::size_t, int> transfer_all(std::size_t bytes, int retries, const Step& step) {
  std::size_t done = 0;
  int interruptions = 0;
  while (done < bytes) {
    const std::int64_t result = step(done);
    if ((result == -EINTR || result == -EAGAIN) && ++interruptions < most_interruptions) continue;
    if (result < 0 && retries-- > 0) continue;
    if (result < 0) return {done, static_cast<int>(-result)};
    if (result == 0) return {done, 0};
    interruptions = 0;
    // A direct transfer goes on from an aligned byte.
    const std::size_t reached = done + static_cast<std::size_t>(result);
    if (reached == bytes) return {bytes, 0};
    const std::size_t next = reached / direct_alignment * direct_alignment;
    if (next <= done) return {reached, 0};
    done = next;
  }
  return {done, 0};
}

}  // namespace

std::int64_t free_bytes_of(const fs::path& directory) {
  struct statfs info {};
  if (statfs(directory.c_str(), &info) != 0 || info.f_blocks == 0) return -1;
  return static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_bsize);
}

void check_spill_directory(const fs::path& directory) {
  struct stat info {};
  if (stat(directory.c_str(), &info) != 0) {
    const int error = errno;
    throw UserError("spill_dir: the directory '{}' cannot be used ({}): create it, or name another with --spill-dir",
                    directory.string(), errno_text(error));
  }
  if (!S_ISDIR(info.st_mode)) {
    throw UserError("spill_dir: '{}' is not a directory: name another with --spill-dir", directory.string());
  }
}

SpillFile SpillFile::make_unnamed(const fs::path& directory, std::int64_t bytes) {
  check_spill_directory(directory);
  SpillFile file;
  file.directory_ = directory;
  for (int i = 0; i < most_names; ++i) {
    // A name can be taken by a second store of this process, or by what a killed process of the same id left empty.
    const fs::path path =
        directory / fmt::format("spillway-{}{}.spill", getpid(), i == 0 ? std::string() : fmt::format("-{}", i));
    file.descriptor_ = create(path);
    if (file.descriptor_ < 0) {
      if (errno == EEXIST) continue;
      fail_create(directory, errno);
    }
    if (unlink(path.c_str()) != 0) {
      throw DeviceError("removing the name of '{}' failed ({}): name another directory with --spill-dir", path.string(),
                        errno_text(errno));
    }
    file.lock(SpillAccess::write);
    turn_copy_on_write_off(file.descriptor_);
    file.reserve(bytes);
    return file;
  }
  throw UserError("spill_dir: the directory '{}' is full of old spillway-*.spill files: remove them",
                  directory.string());
}

SpillFile SpillFile::make(const fs::path& directory, const std::string& name, std::int64_t bytes) {
  check_spill_directory(directory);
  SpillFile file;
  file.directory_ = directory;
  file.path_ = directory / name;
  file.descriptor_ = create(file.path_);
  if (file.descriptor_ < 0) fail_create(directory, errno);
  file.remove_at_end_ = true;
  file.lock(SpillAccess::write);
  turn_copy_on_write_off(file.descriptor_);
  file.reserve(bytes);
  return file;
}

SpillFile SpillFile::open(const fs::path& path, SpillAccess access) {
  SpillFile file;
  file.path_ = path;
  file.directory_ = path.parent_path();
  file.descriptor_ = ::open(path.c_str(), (access == SpillAccess::read ? O_RDONLY : O_RDWR) | O_CLOEXEC);
  if (file.descriptor_ < 0) {
    throw UserError("the slot file '{}' cannot be opened ({}): change its permissions, or name another directory",
                    path.string(), errno_text(errno));
  }
  file.lock(access);
  return file;
}

SpillFile& SpillFile::operator=(SpillFile&& other) noexcept {
  std::swap(directory_, other.directory_);
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(remove_at_end_, other.remove_at_end_);
  std::swap(direct_, other.direct_);
  std::swap(note_, other.note_);
  return *this;
}

SpillFile::~SpillFile() {
  if (remove_at_end_) unlink(path_.c_str());
  if (descriptor_ >= 0) close(descriptor_);
}

// Taken on the data's own descriptor: while any process can still write the file, nobody else gets it.
void SpillFile::lock(SpillAccess access) const {
  if (flock(descriptor_, (access == SpillAccess::read ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0) return;
  const int error = errno;
  if (error == EWOULDBLOCK) {
    throw FileInUse("{} is in use{}: wait until that run has ended, or name another directory", name(),
                    holder_of(descriptor_));
  }
  throw DeviceError("locking {} failed ({}): name another directory with --spill-dir", name(), errno_text(error));
}

void SpillFile::turn_direct() {
  const std::string refusal = try_direct(descriptor_);
  direct_ = refusal.empty();
  note_ = direct_ ? "" : fmt::format("through the page cache, direct I/O was refused: {}", refusal);
  const std::uint64_t type = file_system_of(descriptor_);
  if (type == TMPFS_MAGIC || type == RAMFS_MAGIC) {
    note_ += fmt::format("{}this file system keeps its files in memory", note_.empty() ? "" : "; ");
  }
}

void SpillFile::reserve(std::int64_t bytes) const {
  const std::int64_t more_bytes = bytes - size_bytes();
  if (more_bytes <= 0) return;
  check_file_limit(directory_, bytes);
  // Looked at first: file systems hand out space until there is none, to the harm of everybody else on the disk.
  const std::int64_t free = free_bytes_of(directory_);
  if (free >= 0 && more_bytes > free) fail_full(directory_, more_bytes, ENOSPC);
  int error = EINTR;
  while (error == EINTR) error = posix_fallocate(descriptor_, bytes - more_bytes, more_bytes);
  if (error == 0) return;
  if (error == ENOSPC || error == EDQUOT) fail_full(directory_, more_bytes, error);
  if (error == EFBIG) {
    throw DeviceError(
        "the file system of the spill directory '{}' does not hold a file of {}: name another with --spill-dir",
        directory_.string(), format_bytes(bytes));
  }
  throw DeviceError(
      "reserving {} in the spill directory '{}' failed ({}): check the disk, or name another with --spill-dir",
      format_bytes(more_bytes), directory_.string(), errno_text(error));
}

void SpillFile::settle(DiskCalls& calls) const {
  flush(calls);
  sync_directory(directory_);
}

void SpillFile::remove() const {
  if (unlink(path_.c_str()) != 0 && errno != ENOENT) {
    throw UserError("the slot file '{}' cannot be removed ({}): change the permissions of its directory",
                    path_.string(), errno_text(errno));
  }
  sync_directory(directory_);
}

void SpillFile::read(DiskCalls& calls, std::int64_t offset_bytes, std::span<std::byte> into) const {
  const auto [done, error] = transfer_all(into.size(), 1, [&](std::size_t at) {
    return calls.read(descriptor_, offset_bytes + static_cast<std::int64_t>(at), into.subspan(at));
  });
  if (error != 0) {
    throw DeviceError("reading {} at offset {} failed ({}): check the disk", name(), offset_bytes, errno_text(error));
  }
  if (done != into.size()) {
    throw DeviceError("reading {} at offset {} ended after {} of {} bytes: the file was cut short, or the disk fails",
                      name(), offset_bytes, done, into.size());
  }
}

void SpillFile::write(DiskCalls& calls, std::int64_t offset_bytes, std::span<const std::byte> from) const {
  const auto [done, error] = transfer_all(from.size(), 0, [&](std::size_t at) {
    return calls.write(descriptor_, offset_bytes + static_cast<std::int64_t>(at), from.subspan(at));
  });
  if (error == 0 && done == from.size()) return;
  throw DeviceError("writing {} at offset {} failed ({}): check the disk and its free space", name(), offset_bytes,
                    errno_text(error == 0 ? EIO : error));
}

void SpillFile::flush(DiskCalls& calls) const {
  int error = EINTR;
  while (error == EINTR) error = calls.flush(descriptor_);
  if (error == 0) return;
  throw DeviceError("making {} durable failed ({}): check the disk and its free space", name(), errno_text(error));
}

std::int64_t SpillFile::size_bytes() const {
  struct stat info {};
  if (fstat(descriptor_, &info) != 0) {
    throw DeviceError("asking for the size of {} failed ({}): check the disk", name(), errno_text(errno));
  }
  return info.st_size;
}

std::string SpillFile::name() const {
  return path_.empty() ? fmt::format("the spill file in '{}'", directory_.string())
                       : fmt::format("the slot file '{}'", path_.string());
}

}  // namespace spillway
