// The global norm of the gradients, and the factor that clips them, with a fixed order of sums.
#pragma once

#include <span>

#include "program/record.h"

namespace spillway {

extern const OpSpec sum_squares_spec;
extern const OpSpec clip_factor_spec;

// grad f32 or bf16 (rows, cols) -> f64 (blocks, 1): the sum of squares of each reduction block of `block_rows` rows
// (the last may have fewer), in double: element i of a block goes to lane i mod 16, lanes are added halves onto each
// other.
Operand sum_squares(Recorder& recorder, Operand grad, std::int64_t block_rows);

struct Clip {
  Operand norm;    // f64 (1, 1)
  Operand factor;  // f32 (1, 1)
};

// max_norm f32 (1, 1), sums n of f64 (blocks, 1) -> two outputs:
//   norm   = sqrt of all block sums added in order, in double
//   factor = min(1, max_norm / (norm + 1e-6)), in double, rounded once; exactly 1 when max_norm <= 0 (no clipping)
// as torch.nn.utils.clip_grad_norm_ has it. A norm that is not finite gives a factor that is not to be used.
Clip clip_factor(Recorder& recorder, Operand max_norm, std::span<const Operand> sums);

}  // namespace spillway
