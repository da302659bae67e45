// What the host writes into a Program before a step: windows of tokens and their positions.
#pragma once

#include <vector>

#include "executor/executor.h"
#include "model/programs.h"
#include "text/dataset.h"

namespace spillway {

class BatchFeed {
 public:
  // All must outlive this. `program` is the index the executor knows the Program by.
  BatchFeed(Executor& executor, std::int32_t program, const std::vector<MicroBatchInputs>& micro_batches,
            const StepShape& shape, const Windows& windows);

  // Fills all micro-batches with sequences [first, first + sequences a step). Those at or beyond `end` have no targets.
  // Returns the number of targets.
  std::int64_t fill(std::int64_t first, std::int64_t end);
  std::int64_t sequences() const { return shape_.sequences * shape_.micro_batches; }  // of a step

 private:
  std::span<std::int32_t> host(const Operand& operand) const;

  Executor& executor_;
  std::int32_t program_;
  const std::vector<MicroBatchInputs>& micro_batches_;
  StepShape shape_;
  const Windows& windows_;
};

// Writes one number, or the rope frequencies of a model, into an input.
void set_input(Executor& executor, std::int32_t program, const Operand& operand, float value);
void set_frequencies(Executor& executor, std::int32_t program, const Operand& operand, const ModelConfig& config);

}  // namespace spillway
