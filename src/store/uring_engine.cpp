// io_uring, used by one thread that sleeps in the kernel: no polling thread, no registered buffers (they would need
// locked memory and save little with requests this large). wake writes to an eventfd that the ring polls.
#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "base/bytes.h"
#include "base/error.h"
#include "store/io_engines.h"
#include "store/io_parts.h"

namespace spillway {
namespace {

constexpr std::uint64_t wake_tag = UINT64_MAX;

class UringEngine final : public IoEngine {
 public:
  UringEngine(const IoOptions& options, const io_uring& ring, int wake_descriptor)
      : options_(options),
        parts_(options.depth, options.request_bytes),
        ring_(ring),
        wake_descriptor_(wake_descriptor) {
    watch_wake();
  }

  // Where the kernel refuses what it took before, what is queued never begins.
  ~UringEngine() override {
    std::vector<IoCompletion> dropped;
    while (parts_.under_way() > 0 && is_taken(io_uring_submit_and_wait(&ring_, 1))) reap(dropped);
    io_uring_queue_exit(&ring_);
    close(wake_descriptor_);
  }

  // Before the first request: a filter of system calls may allow the ring and refuse its use. Returns why.
  std::string begin() {
    const int result = io_uring_submit(&ring_);
    return is_taken(result) ? "" : fmt::format("io_uring refuses requests: {}", errno_text(-result));
  }

  int add_file(int descriptor) override { return files_.add(descriptor); }

  void submit(const IoRequest& request) override { parts_.add(request, files_.at(request.file).direct); }

  void wait(std::vector<IoCompletion>& done) override {
    const std::size_t before = done.size();
    while (done.size() == before && !woken_) {
      start_parts();
      enter(1);
      reap(done);
    }
    woken_ = false;
    // What has just become possible starts before the caller looks at its completions, so that the disk stays busy.
    start_parts();
    enter(0);
  }

  void wake() override {
    const std::uint64_t one = 1;
    while (write(wake_descriptor_, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
  }

  int flush(int number) override { return files_.flush(number); }

  std::string describe() const override {
    return fmt::format("io_uring, {} requests of {}", options_.depth, format_bytes(options_.request_bytes));
  }

 private:
  // The ring has room for every part and the wake, so there always is one.
  io_uring_sqe* next_entry() {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    SPILLWAY_CHECK(entry != nullptr, "{} parts under way, depth {}", parts_.under_way(), options_.depth);
    return entry;
  }

  void watch_wake() {
    io_uring_sqe* const entry = next_entry();
    io_uring_prep_poll_add(entry, wake_descriptor_, POLL_IN);
    io_uring_sqe_set_data64(entry, wake_tag);
  }

  void start_parts() {
    for (int part = parts_.start(); part >= 0; part = parts_.start()) {
      const IoParts::Transfer transfer = parts_.transfer(part);
      io_uring_sqe* const entry = next_entry();
      const int descriptor = files_.at(transfer.file).descriptor;
      const auto bytes = static_cast<unsigned>(transfer.bytes);
      const auto offset = static_cast<std::uint64_t>(transfer.offset_bytes);
      if (transfer.kind == IoRequest::Kind::read) {
        io_uring_prep_read(entry, descriptor, transfer.data, bytes, offset);
      } else {
        io_uring_prep_write(entry, descriptor, transfer.data, bytes, offset);
      }
      io_uring_sqe_set_data64(entry, static_cast<std::uint64_t>(part));
    }
  }

  // EAGAIN and EBUSY: the kernel is short of memory or has completions for us; what was not taken stays queued.
  static bool is_taken(int result) { return result >= 0 || result == -EINTR || result == -EAGAIN || result == -EBUSY; }

  void enter(unsigned wait_count) {
    const int result = wait_count > 0 ? io_uring_submit_and_wait(&ring_, wait_count) : io_uring_submit(&ring_);
    if (!is_taken(result)) throw DeviceError("io_uring refuses requests that it took before: {}", errno_text(-result));
  }

  void reap(std::vector<IoCompletion>& done) {
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&ring_, &entry) == 0) {
      const std::uint64_t tag = io_uring_cqe_get_data64(entry);
      const int result = entry->res;
      io_uring_cqe_seen(&ring_, entry);
      if (tag == wake_tag) {
        take_wake();
      } else {
        parts_.finish(static_cast<int>(tag), result, done);
      }
    }
  }

  void take_wake() {
    std::uint64_t count = 0;
    if (read(wake_descriptor_, &count, sizeof(count)) == sizeof(count)) woken_ = true;
    watch_wake();
  }

  IoOptions options_;
  IoParts parts_;
  io_uring ring_;
  int wake_descriptor_;
  bool woken_ = false;
  IoFiles files_;
};

// Why not, or nothing.
std::string lacking_operations(io_uring& ring) {
  io_uring_probe* const probe = io_uring_get_probe_ring(&ring);
  if (probe == nullptr)
    return "io_uring does not say what it can do; that needs Linux 5.6, and no filter of system calls";
  bool all = true;
  for (const int operation : {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_POLL_ADD}) {
    all = all && io_uring_opcode_supported(probe, operation) != 0;
  }
  io_uring_free_probe(probe);
  return all ? "" : "io_uring of this kernel has no plain reads and writes; they need Linux 5.6";
}

}  // namespace

std::unique_ptr<IoEngine> make_uring_engine(const IoOptions& options, std::string& reason) {
  io_uring ring{};
  if (const int error = io_uring_queue_init(static_cast<unsigned>(options.depth) + 2, &ring, 0); error < 0) {
    reason = fmt::format("io_uring was refused: {}", errno_text(-error));
    return nullptr;
  }
  reason = lacking_operations(ring);
  if (!reason.empty()) {
    io_uring_queue_exit(&ring);
    return nullptr;
  }
  const int wake_descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_descriptor < 0) {
    const int error = errno;
    io_uring_queue_exit(&ring);
    throw DeviceError("no file descriptor for input and output ({}): raise 'ulimit -n'", errno_text(error));
  }
  auto engine = std::make_unique<UringEngine>(options, ring, wake_descriptor);
  reason = engine->begin();
  if (!reason.empty()) return nullptr;
  return engine;
}

}  // namespace spillway
