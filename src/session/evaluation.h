// The loss of a model over windows, by a Program that an executor runs: of `spillway eval`, and while training.
#pragma once

#include <cstdint>

#include "executor/executor.h"
#include "model/programs.h"
#include "session/feed.h"
#include "text/dataset.h"

namespace spillway {

class Evaluation {
 public:
  // All must outlive this. `index` is what the executor knows the Program by, `shape` what it was recorded for. Writes
  // the inputs that do not change.
  Evaluation(Executor& executor, std::int32_t index, const EvaluationProgram& program, const StepShape& shape,
             const Windows& windows, const ModelConfig& config);

  struct Sum {
    double loss = 0;
    std::int64_t targets = 0;
    double mean() const { return loss / static_cast<double>(targets); }
  };
  // Of the first `windows` windows, in order. Throws DeviceError.
  Sum run(const Plan& plan, std::int64_t windows);

 private:
  Executor& executor_;
  std::int32_t index_;
  const EvaluationProgram& program_;
  BatchFeed feed_;
};

}  // namespace spillway
