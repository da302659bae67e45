#include "store/simulated_disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>

#include "base/error.h"
#include "store/aligned_buffer.h"

namespace spillway {
namespace {

constexpr std::size_t sector_bytes = 512;

}  // namespace

class SimulatedDisk::Calls final : public DiskCalls {
 public:
  explicit Calls(SimulatedDisk& disk) : disk_(disk) {}

  std::int64_t read(int descriptor, std::int64_t offset_bytes, std::span<std::byte> into) override {
    return disk_.read(descriptor, offset_bytes, into.first(disk_.some_of(into.size())));
  }
  std::int64_t write(int descriptor, std::int64_t offset_bytes, std::span<const std::byte> from) override {
    std::uint64_t number = 0;
    return disk_.write(descriptor, offset_bytes, from.first(disk_.some_of(from.size())), true, number);
  }
  int flush(int descriptor) override { return disk_.flush(descriptor); }

 private:
  SimulatedDisk& disk_;
};

class SimulatedDisk::Engine final : public IoEngine {
 public:
  explicit Engine(SimulatedDisk& disk) : disk_(disk) {}
  ~Engine() override {
    for (const Active& active : active_) {
      if (active.request.kind == IoRequest::Kind::write) disk_.complete(descriptor_of(active.request), active.number);
    }
  }

  int add_file(int descriptor) override {
    descriptors_.push_back(descriptor);
    return static_cast<int>(descriptors_.size()) - 1;
  }

  void submit(const IoRequest& request) override {
    Active active{request, 0, {request.tag, 0, 0, request.bytes}};
    if (request.kind == IoRequest::Kind::write) {
      const std::span<const std::byte> bytes(request.data, static_cast<std::size_t>(request.bytes));
      take(active, disk_.write(descriptor_of(request), request.offset_bytes, bytes, false, active.number));
    }
    active_.push_back(active);
  }

  void wait(std::vector<IoCompletion>& done) override {
    if (active_.empty()) {
      std::unique_lock lock(mutex_);
      woken_.wait(lock, [this] { return wake_; });
      wake_ = false;
      return;
    }
    std::swap(active_[disk_.any_below(active_.size())], active_.back());
    Active active = active_.back();
    active_.pop_back();
    const IoRequest& request = active.request;
    if (request.kind == IoRequest::Kind::read) {
      take(active, disk_.read(descriptor_of(request), request.offset_bytes,
                              {request.data, static_cast<std::size_t>(request.bytes)}));
    } else if (active.end.error == 0) {
      disk_.complete(descriptor_of(request), active.number);
    }
    done.push_back(active.end);
  }

  void wake() override {
    {
      const std::lock_guard lock(mutex_);
      wake_ = true;
    }
    woken_.notify_one();
  }

  int flush(int file) override { return disk_.flush(descriptors_[static_cast<std::size_t>(file)]); }
  std::string describe() const override { return "a simulated disk"; }

 private:
  struct Active {
    IoRequest request;
    std::uint64_t number = 0;
    IoCompletion end;
  };

  int descriptor_of(const IoRequest& request) const { return descriptors_[static_cast<std::size_t>(request.file)]; }
  static void take(Active& active, std::int64_t result) {
    (result < 0 ? active.end.error = static_cast<int>(-result) : active.end.bytes = result);
  }

  SimulatedDisk& disk_;
  std::vector<int> descriptors_;
  std::vector<Active> active_;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool wake_ = false;
};

SimulatedDisk::SimulatedDisk(std::uint64_t seed, const SimulatedFaults& faults)
    : random_(seed), faults_(faults), calls_(std::make_unique<Calls>(*this)) {}

// What is still in the cache of a disk that keeps its power gets written.
SimulatedDisk::~SimulatedDisk() {
  for (auto& [id, file] : files_) {
    if (!crashed_) {
      for (const Write& write : file.writes) apply(file, write.offset_bytes, write.bytes);
    }
    close(file.descriptor);
  }
}

void SimulatedDisk::set_faults(const SimulatedFaults& faults) {
  const std::lock_guard lock(mutex_);
  faults_ = faults;
  operations_ = 0;
}

DiskCalls& SimulatedDisk::calls() { return *calls_; }

std::unique_ptr<IoEngine> SimulatedDisk::make_engine() { return std::make_unique<Engine>(*this); }

std::int64_t SimulatedDisk::operations() const {
  const std::lock_guard lock(mutex_);
  return operations_;
}

bool SimulatedDisk::crashed() const {
  const std::lock_guard lock(mutex_);
  return crashed_;
}

void SimulatedDisk::crash() {
  const std::lock_guard lock(mutex_);
  crash_locked();
}

void SimulatedDisk::crash_locked() {
  if (crashed_) return;
  crashed_ = true;
  for (auto& [id, file] : files_) {
    // Some losses are of everything, some of nothing, most of a part.
    const double share = std::uniform_real_distribution<double>(-0.25, 1.25)(random_);
    for (const Write& write : file.writes) {
      const std::span<const std::byte> bytes = write.bytes;
      const bool whole = random_() % 2 == 0;  // the write lands as one, or sector by sector
      const bool lands = std::uniform_real_distribution<double>(0, 1)(random_) < share;
      for (std::size_t at = 0; at < bytes.size(); at += sector_bytes) {
        const bool here = whole ? lands : std::uniform_real_distribution<double>(0, 1)(random_) < share;
        if (!here) continue;
        apply(file, write.offset_bytes + static_cast<std::int64_t>(at),
              bytes.subspan(at, std::min(sector_bytes, bytes.size() - at)));
      }
    }
    file.writes.clear();
  }
}

void SimulatedDisk::apply(const File& file, std::int64_t offset_bytes, std::span<const std::byte> bytes) {
  const ssize_t put = pwrite(file.descriptor, bytes.data(), bytes.size(), offset_bytes);
  SPILLWAY_CHECK(put == std::ssize(bytes), "{} of {} bytes written: {}", put, bytes.size(), errno);
}

SimulatedDisk::File& SimulatedDisk::file_of(int descriptor) {
  struct stat info {};
  SPILLWAY_CHECK(fstat(descriptor, &info) == 0, "descriptor {}: {}", descriptor, errno);
  File& file = files_[{info.st_dev, info.st_ino}];
  if (file.descriptor < 0) {
    file.descriptor = open(fmt::format("/proc/self/fd/{}", descriptor).c_str(), O_RDWR | O_CLOEXEC);
    SPILLWAY_CHECK(file.descriptor >= 0, "descriptor {}: {}", descriptor, errno);
  }
  return file;
}

int SimulatedDisk::begin_operation() {
  const std::int64_t number = operations_++;
  if (number == faults_.crash_at) crash_locked();
  if (crashed_) return EIO;
  const bool fails =
      faults_.fail_at >= 0 && (number == faults_.fail_at || (faults_.fail_after && number > faults_.fail_at));
  return fails ? faults_.error : 0;
}

std::size_t SimulatedDisk::some_of(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  constexpr auto least = static_cast<std::size_t>(direct_alignment);
  if (bytes <= least || std::uniform_real_distribution<double>(0, 1)(random_) >= faults_.short_share) {
    return bytes;
  }
  return (1 + random_() % (bytes / least)) * least;
}

std::size_t SimulatedDisk::any_below(std::size_t count) {
  const std::lock_guard lock(mutex_);
  return random_() % count;
}

std::int64_t SimulatedDisk::read(int descriptor, std::int64_t offset_bytes, std::span<std::byte> into) {
  const std::lock_guard lock(mutex_);
  if (crashed_) return -EIO;
  const File& file = file_of(descriptor);
  const ssize_t got = pread(file.descriptor, into.data(), into.size(), offset_bytes);
  if (got < 0) return -errno;
  for (const Write& write : file.writes) {
    const std::int64_t begin = std::max(offset_bytes, write.offset_bytes);
    const std::int64_t end = std::min(offset_bytes + got, write.offset_bytes + std::ssize(write.bytes));
    if (begin >= end) continue;
    std::memcpy(into.data() + (begin - offset_bytes), write.bytes.data() + (begin - write.offset_bytes),
                static_cast<std::size_t>(end - begin));
  }
  return got;
}

std::int64_t SimulatedDisk::write(int descriptor, std::int64_t offset_bytes, std::span<const std::byte> from,
                                  bool complete, std::uint64_t& number) {
  const std::lock_guard lock(mutex_);
  if (const int error = begin_operation(); error != 0) return -error;
  number = next_write_++;
  file_of(descriptor).writes.push_back({offset_bytes, {from.begin(), from.end()}, number, complete});
  return std::ssize(from);
}

void SimulatedDisk::complete(int descriptor, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  for (Write& write : file_of(descriptor).writes) {
    if (write.number == number) write.complete = true;
  }
}

int SimulatedDisk::flush(int descriptor) {
  const std::lock_guard lock(mutex_);
  if (const int error = begin_operation(); error != 0) return error;
  File& file = file_of(descriptor);
  for (const Write& write : file.writes) {
    if (write.complete) apply(file, write.offset_bytes, write.bytes);
  }
  std::erase_if(file.writes, [](const Write& write) { return write.complete; });
  return 0;
}

}  // namespace spillway
