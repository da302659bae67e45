#include "store/io.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "store/faulty_io.h"
#include "store/io_engines.h"

namespace spillway {
namespace {

constexpr std::uint64_t slice_ns = 100'000;  // the shortest that the kernel takes

// The first version of sched_attr (man 2 sched_setattr), whose header cannot be included beside the C library's.
struct SchedulerAttributes {
  std::uint32_t size = 0;
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime_ns = 0;  // of plain policies, the slice
  std::uint64_t deadline_ns = 0;
  std::uint64_t period_ns = 0;
};
static_assert(sizeof(SchedulerAttributes) == 48);

}  // namespace

void run_promptly() {
  SchedulerAttributes attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) return;
  if (attributes.policy != SCHED_OTHER && attributes.policy != SCHED_BATCH) return;  // chosen by hand
  attributes.size = sizeof(attributes);
  attributes.runtime_ns = slice_ns;  // all else stays as it is
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

std::unique_ptr<IoEngine> make_io_engine(const IoOptions& options) {
  std::string reason = "io_uring is turned off";
  std::unique_ptr<IoEngine> engine;
  if (options.allow_uring) engine = make_uring_engine(options, reason);
  if (!engine) engine = make_thread_engine(options, reason);
  if (options.throttle_bytes_per_second == 0) return engine;
  return make_throttled_engine(std::move(engine), options.throttle_bytes_per_second);
}

}  // namespace spillway
