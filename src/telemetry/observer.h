// Who is told what happens while a run goes on.
#pragma once

#include <string_view>

#include "telemetry/live.h"
#include "telemetry/record.h"

namespace spillway {

// Called from the thread that runs the training, except `live` and `slow`, which come from one that watches it. No two
// calls at once. What an observer throws ends the run.
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

  // Some times a second, also while a step goes on.
  virtual void live(const LiveStatus& status) { static_cast<void>(status); }
  // A step takes far longer than it should: one sentence that names what it waits for, without a full stop. Once a
  // step, and again each time the step has taken twice as long.
  virtual void slow(std::string_view sentence) { note(sentence); }
};

}  // namespace spillway
