// Asks for a stop after a step, as a signal does.
#pragma once

#include <cstdint>

#include "recording_observer.h"
#include "session/run_control.h"

namespace spillway {

class StopAfter final : public RecordingObserver {
 public:
  StopAfter(RunControl& control, std::int64_t step) : control_(control), step_(step) {}
  void step(const StepRecord& record) override {
    RecordingObserver::step(record);
    if (record.step == step_) control_.stop = 15;
  }

 private:
  RunControl& control_;
  std::int64_t step_;
};

}  // namespace spillway
