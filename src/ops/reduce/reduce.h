// Sums over rows in a fixed order: first over blocks of rows, then block after block. Gradients of biases and norms.
#pragma once

#include "program/record.h"

namespace spillway {

// Partial sums over rows run over blocks of this many, in row order, in fp32.
constexpr std::int64_t partial_block_rows = 256;

// reads dy (R, C) f32 or bf16; writes partials f32 (ceil(R / 256), C).
extern const OpSpec column_sums_spec;
// reads partials f32 (N, C) and, optionally, accumulator f32 (C, 1); writes f32 (C, 1), the accumulator plus partial 0
// plus partial 1 …, added in that order. May share the accumulator.
extern const OpSpec add_partials_spec;

Operand column_sums(Recorder& recorder, Operand dy);  // (R, C) -> (ceil(R / 256), C)
// The accumulator may be absent: then the sum of the partials alone.
Operand add_partials(Recorder& recorder, Operand partials, Operand accumulator);  // (N, C), (C, 1) -> (C, 1)

}  // namespace spillway
