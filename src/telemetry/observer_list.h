// Several observers as one.
#pragma once

#include <vector>

#include "telemetry/observer.h"

namespace spillway {

// Does not own them; each is told in the order in which they were added.
class ObserverList : public TrainObserver {
 public:
  void add(TrainObserver& observer) { observers_.push_back(&observer); }

  void note(std::string_view sentence) override {
    for (TrainObserver* const observer : observers_) observer->note(sentence);
  }
  void started(const RunSummary& run) override {
    for (TrainObserver* const observer : observers_) observer->started(run);
  }
  void step(const StepRecord& record) override {
    for (TrainObserver* const observer : observers_) observer->step(record);
  }
  void finished(const RunEnd& end) override {
    for (TrainObserver* const observer : observers_) observer->finished(end);
  }
  void live(const LiveStatus& status) override {
    for (TrainObserver* const observer : observers_) observer->live(status);
  }
  void slow(std::string_view sentence) override {
    for (TrainObserver* const observer : observers_) observer->slow(sentence);
  }

 private:
  std::vector<TrainObserver*> observers_;
};

}  // namespace spillway
