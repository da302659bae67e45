#include "store/io.h"

#include "store/faulty_io.h"
#include "store/io_engines.h"

namespace spillway {

std::unique_ptr<IoEngine> make_io_engine(const IoOptions& options) {
  std::string reason = "io_uring is turned off";
  std::unique_ptr<IoEngine> engine;
  if (options.allow_uring) engine = make_uring_engine(options, reason);
  if (!engine) engine = make_thread_engine(options, reason);
  if (options.throttle_bytes_per_second == 0) return engine;
  return make_throttled_engine(std::move(engine), options.throttle_bytes_per_second);
}

}  // namespace spillway
