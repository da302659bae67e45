// Who is told what happens while a run goes on.
#pragma once

#include <string_view>

#include "telemetry/record.h"

namespace spillway {

// Called from one thread, the one that runs the training. What an observer throws ends the run.
class TrainObserver {
 public:
  TrainObserver() = default;
  TrainObserver(const TrainObserver&) = delete;
  TrainObserver& operator=(const TrainObserver&) = delete;
  virtual ~TrainObserver() = default;

  // One sentence that the user should know once, without a full stop: "dtype auto is f32 on this processor".
  virtual void note(std::string_view sentence) = 0;
  virtual void started(const RunSummary& run) = 0;
  virtual void step(const StepRecord& record) = 0;  // every step
  virtual void finished(const RunEnd& end) = 0;
};

}  // namespace spillway
