#include "store/slot_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "base/bytes.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t direct_alignment = 4096;
constexpr int most_names = 1000;

std::string text_of(int error) { return std::generic_category().message(error); }

void check_directory(const fs::path& directory) {
  struct stat info {};
  if (stat(directory.c_str(), &info) != 0) {
    const int error = errno;
    throw UserError("spill_dir: the directory '{}' cannot be used ({}): create it, or name another with --spill-dir",
                    directory.string(), text_of(error));
  }
  if (!S_ISDIR(info.st_mode)) {
    throw UserError("spill_dir: '{}' is not a directory: name another with --spill-dir", directory.string());
  }
}

// Nothing when the file system does not say.
std::optional<std::int64_t> free_bytes(const fs::path& directory) {
  struct statfs info {};
  if (statfs(directory.c_str(), &info) != 0 || info.f_blocks == 0) return std::nullopt;
  return static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_bsize);
}

// Buffered at first, since direct I/O is asked for once the space is there.
int create_file(const fs::path& directory) {
  for (int i = 0; i < most_names; ++i) {
    // A name can be taken by a second store of this process, or by what a killed process of the same id left empty.
    const fs::path path =
        directory / fmt::format("spillway-{}{}.spill", getpid(), i == 0 ? std::string() : fmt::format("-{}", i));
    const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (descriptor >= 0) {
      if (unlink(path.c_str()) == 0) return descriptor;
      const int error = errno;
      close(descriptor);
      throw DeviceError("removing the name of '{}' failed ({}): name another directory with --spill-dir", path.string(),
                        text_of(error));
    }
    const int error = errno;
    if (error == EEXIST) continue;
    if (error == EROFS || error == EACCES || error == EPERM || error == ENOENT) {
      throw UserError(
          "spill_dir: the directory '{}' is not writable ({}): change its permissions, or name another with "
          "--spill-dir",
          directory.string(), text_of(error));
    }
    throw DeviceError("creating a file in the spill directory '{}' failed ({}): name another with --spill-dir",
                      directory.string(), text_of(error));
  }
  throw UserError("spill_dir: the directory '{}' is full of old spillway-*.spill files: remove them",
                  directory.string());
}

[[noreturn]] void fail_full(const fs::path& directory, std::int64_t need_bytes, int error) {
  const std::optional<std::int64_t> free = free_bytes(directory);
  throw DeviceError(
      "the spill directory '{}' needs {} and has {} free ({}): free some space there, name another or one more "
      "directory with --spill-dir, or give more --memory",
      directory.string(), format_bytes(need_bytes), free ? format_bytes(*free) : "an unknown amount", text_of(error));
}

// The limit on file sizes is looked at first: exceeding it would end the process by a signal.
void check_file_limit(const fs::path& directory, std::int64_t need_bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const auto most_bytes = static_cast<std::int64_t>(limit.rlim_cur);
  if (need_bytes <= most_bytes) return;
  throw DeviceError(
      "the spill file in '{}' needs {} and this process may write files of at most {}: raise 'ulimit -f', name one "
      "more "
      "directory with --spill-dir, or give more --memory",
      directory.string(), format_bytes(need_bytes), format_bytes(most_bytes));
}

void preallocate(int descriptor, const fs::path& directory, std::int64_t bytes) {
  if (bytes == 0) return;
  check_file_limit(directory, bytes);
  // Looked at first: file systems hand out space until there is none, to the harm of everybody else on the disk.
  if (bytes > free_bytes(directory).value_or(bytes)) fail_full(directory, bytes, ENOSPC);
  int error = EINTR;
  while (error == EINTR) error = posix_fallocate(descriptor, 0, bytes);
  if (error == 0) return;
  if (error == ENOSPC || error == EDQUOT) fail_full(directory, bytes, error);
  if (error == EFBIG) {
    throw DeviceError(
        "the file system of the spill directory '{}' does not hold a file of {}: name another with "
        "--spill-dir",
        directory.string(), format_bytes(bytes));
  }
  throw DeviceError(
      "reserving {} in the spill directory '{}' failed ({}): check the disk, or name another with "
      "--spill-dir",
      format_bytes(bytes), directory.string(), text_of(error));
}

struct FreeAligned {
  void operator()(std::byte* data) const { ::operator delete(data, std::align_val_t(direct_alignment)); }
};

// Turns direct I/O on, and tries it: some file systems accept the flag and refuse the reads, or want larger units.
// Returns why it is not possible, or nothing.
std::string turn_direct(int descriptor) {
  const int flags = fcntl(descriptor, F_GETFL);
  if (fcntl(descriptor, F_SETFL, flags | O_DIRECT) != 0) return text_of(errno);
  const std::unique_ptr<std::byte, FreeAligned> data(
      static_cast<std::byte*>(::operator new(direct_alignment, std::align_val_t(direct_alignment))));
  ssize_t got = -1;
  do {
    got = pread(descriptor, data.get(), direct_alignment, 0);
  } while (got < 0 && errno == EINTR);
  if (got >= 0) return "";
  const int error = errno;
  fcntl(descriptor, F_SETFL, flags);
  return text_of(error);
}

bool lies_in_memory(int descriptor) {
  struct statfs info {};
  return fstatfs(descriptor, &info) == 0 && (info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC);
}

}  // namespace

SlotStore::SlotStore(const SlotStoreOptions& options, IoEngine& engine)
    : slot_bytes_(options.slot_bytes), free_count_(options.slot_count) {
  SPILLWAY_CHECK(slot_bytes_ > 0 && slot_bytes_ % direct_alignment == 0, "slots of {} bytes", slot_bytes_);
  SPILLWAY_CHECK(free_count_ >= 0 && free_count_ <= INT32_MAX, "{} slots", free_count_);
  SPILLWAY_CHECK(!options.directories.empty(), "{} directories", options.directories.size());
  taken_.resize(static_cast<std::size_t>(options.slot_count));
  files_.resize(options.directories.size());
  for (std::size_t i = 0; i < files_.size(); ++i) {
    files_[i].directory = options.directories[i];
    for (std::int64_t slot = static_cast<std::int64_t>(i); slot < options.slot_count; slot += std::ssize(files_)) {
      files_[i].free.push_back(static_cast<std::int32_t>(slot));
    }
    std::reverse(files_[i].free.begin(), files_[i].free.end());
    open_file(files_[i]);
  }
  for (File& file : files_) file.engine_file = engine.add_file(file.descriptor.get());
}

void SlotStore::open_file(File& file) const {
  check_directory(file.directory);
  file.descriptor = Descriptor(create_file(file.directory));
  // Taken on the data's own descriptor: while any process can still write the file, nobody else gets it.
  if (flock(file.descriptor.get(), LOCK_EX | LOCK_NB) != 0) {
    throw DeviceError("locking the spill file in '{}' failed ({}): name another directory with --spill-dir",
                      file.directory.string(), text_of(errno));
  }
  preallocate(file.descriptor.get(), file.directory, std::ssize(file.free) * slot_bytes_);
  const std::string refusal = turn_direct(file.descriptor.get());
  file.direct = refusal.empty();
  if (!file.direct) file.note = fmt::format("through the page cache, direct I/O was refused: {}", refusal);
  if (lies_in_memory(file.descriptor.get())) {
    file.note += fmt::format("{}this file system keeps its files in memory", file.note.empty() ? "" : "; ");
  }
}

SlotStore::Descriptor::~Descriptor() {
  if (value_ >= 0) close(value_);
}

SlotId SlotStore::allocate() {
  SPILLWAY_CHECK(free_count_ > 0, "{} slots, all taken", slot_count());
  while (files_[turn_].free.empty()) turn_ = (turn_ + 1) % files_.size();
  const std::int32_t slot = files_[turn_].free.back();
  files_[turn_].free.pop_back();
  turn_ = (turn_ + 1) % files_.size();
  taken_[static_cast<std::size_t>(slot)] = true;
  --free_count_;
  return static_cast<SlotId>(slot);
}

void SlotStore::release(SlotId slot) {
  const auto index = static_cast<std::size_t>(slot);
  SPILLWAY_CHECK(index < taken_.size() && taken_[index], "slot {} of {}", index, taken_.size());
  taken_[index] = false;
  files_[index % files_.size()].free.push_back(static_cast<std::int32_t>(slot));
  ++free_count_;
}

const SlotStore::File& SlotStore::file_of(SlotId slot) const {
  const auto index = static_cast<std::size_t>(slot);
  SPILLWAY_CHECK(index < taken_.size(), "slot {} of {}", index, taken_.size());
  return files_[index % files_.size()];
}

SlotStore::Location SlotStore::location(SlotId slot) const {
  return {file_of(slot).engine_file, static_cast<std::int64_t>(slot) / std::ssize(files_) * slot_bytes_};
}

bool SlotStore::direct() const {
  return std::all_of(files_.begin(), files_.end(), [](const File& file) { return file.direct; });
}

std::string SlotStore::describe() const {
  std::string text;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const File& file = files_[i];
    const std::int64_t here = divide_up(slot_count() - static_cast<std::int64_t>(i), std::ssize(files_));
    text += fmt::format("{}{}: {} slots of {}", i == 0 ? "" : "; ", file.directory.string(), here,
                        format_bytes(slot_bytes_));
    if (file.direct) text += ", direct";
    if (!file.note.empty()) text += ", " + file.note;
  }
  return text;
}

DeviceError SlotStore::failure(SlotId slot, IoRequest::Kind kind, const IoCompletion& completion) const {
  const std::string directory = file_of(slot).directory.string();
  const char* const verb = kind == IoRequest::Kind::read ? "reading" : "writing";
  const std::int64_t offset_bytes = location(slot).offset_bytes;
  if (completion.error == 0) {
    return DeviceError(
        "{} the spill file in '{}' at offset {} ended after {} of {} bytes: check the disk, or name another directory "
        "with --spill-dir",
        verb, directory, offset_bytes, completion.bytes, slot_bytes_);
  }
  return DeviceError(
      "{} the spill file in '{}' at offset {} failed ({}): check the disk and its free space, or name another "
      "directory "
      "with --spill-dir",
      verb, directory, offset_bytes, text_of(completion.error));
}

}  // namespace spillway
