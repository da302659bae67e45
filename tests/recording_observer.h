// Keeps what a run reports.
#pragma once

#include <string>
#include <vector>

#include "telemetry/observer.h"

namespace spillway {

class RecordingObserver : public TrainObserver {
 public:
  void note(std::string_view sentence) override { notes.emplace_back(sentence); }
  void started(const RunSummary& run) override { summary = run; }
  void step(const StepRecord& record) override { steps.push_back(record); }
  void finished(const RunEnd& run_end) override { end = run_end; }

  std::vector<std::string> notes;
  RunSummary summary;
  std::vector<StepRecord> steps;
  RunEnd end;
};

}  // namespace spillway
