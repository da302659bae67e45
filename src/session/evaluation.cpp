#include "session/evaluation.h"

#include "session/step_runner.h"

namespace spillway {

Evaluation::Evaluation(Executor& executor, std::int32_t index, const EvaluationProgram& program, const StepShape& shape,
                       const Windows& windows, const ModelConfig& config)
    : executor_(executor),
      index_(index),
      program_(program),
      feed_(executor, index, program.micro_batches, shape, windows) {
  set_frequencies(executor, index, program.inverse_frequencies, config);
  set_input(executor, index, program.scale, 1.0F);
}

Evaluation::Sum Evaluation::run(const Plan& plan, std::int64_t windows) {
  Sum sum;
  for (std::int64_t at = 0; at < windows; at += feed_.sequences()) {
    sum.targets += feed_.fill(at, windows);
    executor_.run(plan);
    sum.loss += read_double(executor_, index_, program_.loss);
  }
  return sum;
}

}  // namespace spillway
