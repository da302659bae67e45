#include "store/disk_calls.h"

#include <unistd.h>

#include <cerrno>
#include <thread>

namespace spillway {
namespace {

class SlowFlushCalls final : public DiskCalls {
 public:
  SlowFlushCalls(DiskCalls& inner, std::chrono::microseconds delay) : inner_(inner), delay_(delay) {}

  std::int64_t read(int descriptor, std::int64_t offset_bytes, std::span<std::byte> into) override {
    return inner_.read(descriptor, offset_bytes, into);
  }
  std::int64_t write(int descriptor, std::int64_t offset_bytes, std::span<const std::byte> from) override {
    return inner_.write(descriptor, offset_bytes, from);
  }
  int flush(int descriptor) override {
    std::this_thread::sleep_for(delay_);
    return inner_.flush(descriptor);
  }

 private:
  DiskCalls& inner_;
  std::chrono::microseconds delay_;
};

}  // namespace

std::int64_t DiskCalls::read(int descriptor, std::int64_t offset_bytes, std::span<std::byte> into) {
  const ssize_t got = pread(descriptor, into.data(), into.size(), offset_bytes);
  return got >= 0 ? got : -errno;
}

std::int64_t DiskCalls::write(int descriptor, std::int64_t offset_bytes, std::span<const std::byte> from) {
  const ssize_t put = pwrite(descriptor, from.data(), from.size(), offset_bytes);
  return put >= 0 ? put : -errno;
}

int DiskCalls::flush(int descriptor) { return fdatasync(descriptor) == 0 ? 0 : errno; }

DiskCalls& system_disk_calls() {
  static DiskCalls calls;
  return calls;
}

std::unique_ptr<DiskCalls> make_slow_flush_calls(DiskCalls& inner, std::chrono::microseconds delay) {
  return std::make_unique<SlowFlushCalls>(inner, delay);
}

}  // namespace spillway
