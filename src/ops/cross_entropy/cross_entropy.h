// Cross-entropy over a chunk of tokens with the vocabulary in tiles, and the sum of a step's losses.
// R tokens of the micro-batch, C tokens of the chunk, n tiles of V_i logits.
#pragma once

#include <span>

#include "program/record.h"

namespace spillway {

extern const OpSpec cross_entropy_spec;
extern const OpSpec loss_sum_spec;

// Rows [row_begin, row_begin + row_count) of the targets; -1 is no target.
struct TokenChunk {
  std::int64_t row_begin = 0;
  std::int64_t row_count = 0;
};

struct CrossEntropy {
  Operand loss;                  // f32 (C, 1)
  std::vector<Operand> dlogits;  // n of (C, V_i)
};

// targets i32 (R, 1), scale f32 (1, 1) = 1 / targets of the step, logits n of f32 (C, V_i), in vocabulary order ->
//   loss    f32 (C, 1): log(sum(exp(logits))) - logits[target]; 0 without a target
//   dlogits n of (C, V_i) of `dlogits_dtype` (f32 or bf16): (softmax - onehot) * scale; 0 without a target
// dlogits of f32 may lie in place of the logits. A target is below the sum of V_i.
CrossEntropy cross_entropy(Recorder& recorder, Operand targets, const TokenChunk& chunk, Operand scale,
                           std::span<const Operand> logits, DType dlogits_dtype);

// The loss alone, for evaluation: f32 (C, 1). The same bits as above.
Operand cross_entropy_loss(Recorder& recorder, Operand targets, const TokenChunk& chunk, Operand scale,
                           std::span<const Operand> logits);

// losses k of f32 (C_i, 1) -> f64 (1, 1), an output: their sum in double, in order.
Operand loss_sum(Recorder& recorder, std::span<const Operand> losses);

}  // namespace spillway
