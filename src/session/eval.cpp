#include <cmath>

#include "base/steady_clock.h"
#include "session/data.h"
#include "session/evaluation.h"
#include "session/inference.h"
#include "session/session.h"

namespace spillway {

EvalReport run_eval(const EvalOptions& options) {
  validate(options);
  const auto start = SteadyClock::now();
  InferenceModel model({options.model, options.dtype, options.threads, options.memory_bytes, options.spill_dir});
  const ModelConfig& config = model.config.model;
  const std::int64_t most = config.max_position_embeddings;
  if (options.max_seq_len > most) {
    throw UserError("max_seq_len: {} is more than the {} positions of the model (max_position_embeddings)",
                    options.max_seq_len, most);
  }
  const std::int64_t length = options.max_seq_len > 0 ? options.max_seq_len : std::min(most, default_seq_len);
  const TokenStore tokens = read_tokens(options.data, options.model, config.vocab_size,
                                        model.choices.spill_dirs.front(), model.notes, model.choices.budget_bytes);
  const Windows windows(tokens, length, {});
  const std::int64_t end = options.max_windows > 0 ? std::min(options.max_windows, windows.count()) : windows.count();
  const StepShape shape{std::min(options.per_device_eval_batch_size, end), length, 1};
  const EvaluationProgram program = record_evaluation(model.model, shape);
  model.open({&program.program});
  Evaluation evaluation(*model.executor, 0, program, shape, windows, config);
  const Evaluation::Sum sum = evaluation.run(model.planned.plans.front(), end);
  EvalReport report;
  report.tokens = sum.targets;
  report.loss = sum.mean();
  report.perplexity = std::exp(report.loss);
  report.seconds = seconds_since(start);
  report.notes = model.notes;
  return report;
}

}  // namespace spillway
