// A training run that makes some steps and then sleeps until it is told to make more: several of them take turns, so
// that each is warmed up once and what is compared lies minutes apart, not hours.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "session/options.h"

namespace spillway::bench {

struct PacedStep {
  double seconds = 0;
  double tokens_per_second = 0;
  double disk_bytes = 0;  // both ways
};

// In a process of its own, since a run holds the process to its budget. While it sleeps it holds no processor, but what
// it has in flight to or from the disk ends: the first step of a turn may find done what it would have waited for.
class PacedRun {
 public:
  // Of options.max_steps steps, in options.output_dir, which is removed before and after. Forks: to be made before this
  // process has threads.
  explicit PacedRun(TrainOptions options);
  ~PacedRun();  // a run that has steps left is killed
  PacedRun(PacedRun&& other) noexcept;
  PacedRun& operator=(PacedRun&&) = delete;

  void set_memory_bytes(std::int64_t bytes);  // before the first turn

  // Makes `steps` steps; in the first turn it loads before, and after the last step of all it saves its model. Throws
  // DeviceError where the run has failed; it has said why on stderr.
  std::vector<PacedStep> turn(std::int64_t steps);

 private:
  TrainOptions options_;
  pid_t child_ = 0;
  int to_child_ = -1;
  int from_child_ = -1;
  std::int64_t left_ = 0;  // steps
};

}  // namespace spillway::bench
