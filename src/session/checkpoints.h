// What a training run saves and how it goes on: the output folder, the search for something to resume, exports.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "session/portable.h"
#include "session/run_state.h"
#include "session/setup.h"
#include "telemetry/observer.h"

namespace spillway {

class RunCheckpoints {
 public:
  // Both outlive this.
  RunCheckpoints(const TrainingSetup& setup, TrainObserver& observer) : setup_(setup), observer_(observer) {}

  // Takes the output folder. Throws UserError.
  void claim();
  // Looks for what to go on from, given what the run is. Tells the observer what was passed over, and why, and what has
  // changed. Throws UserError when the run may not go on from it.
  void find(const RunState& now);
  // Where the run begins: at 0, or where it was stopped. After find.
  bool resumes() const { return source_ != nullptr; }
  const RunState& begin() const { return begin_; }
  // Fills the state of the executor from what was found.
  void restore(Executor& executor);

  // After a step, of which `state` is the end.
  void after_step(Executor& executor, const RunState& state);

 private:
  std::unique_ptr<PortableSource> newest_export();
  void take(std::unique_ptr<PortableSource> source, const std::string& name, const RunState& now);
  bool export_is_due(std::int64_t step) const;

  const TrainingSetup& setup_;
  TrainObserver& observer_;
  RunState begin_;
  std::unique_ptr<StateSource> source_;
};

}  // namespace spillway
