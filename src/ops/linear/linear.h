// Linear layers, y = x·Wᵀ + b, and their gradients. Values are f32 or bf16; sums are fp32, rounded once at the end.
//
// W is [out, in] (attribute weight_out_in = 1, the default of most models) or [in, out] (weight_out_in = 0, GPT-2).
// Attributes row_begin and row_count choose rows of x; without them all rows count.
#pragma once

#include "program/record.h"

namespace spillway {

// reads x [X, in], W, bias [out, 1] (optional, f32 or the dtype of x); writes y [rows, out] in the dtype of x, or f32
// where attribute out_f32 = 1. Differentiable when all rows of x are chosen.
extern const OpSpec linear_spec;

// reads dy [T, out], W, accumulator f32 [T, in] (optional); writes dx [T, in] in the dtype of dy, or f32 where
// out_f32 = 1. With an accumulator dx is f32, adds to it and may share it.
extern const OpSpec linear_dx_spec;

// reads x [X, in], dy [rows, out], accumulator f32 in the shape of W (optional); writes the accumulator plus this
// gradient, f32 in the shape of W; may share the old one. The first contribution of a step has no accumulator. With
// attribute rounded = 1 there is none, and the gradient is written as bf16, rounded once.
extern const OpSpec linear_dw_spec;

struct LinearOptions {
  bool weight_out_in = true;
  bool out_f32 = false;
  std::int64_t row_begin = 0;
  std::int64_t row_count = -1;  // -1: all rows
};

// `bias` and `accumulator` may be absent.
Operand linear(Recorder& recorder, Operand x, Operand weight, Operand bias, const LinearOptions& options = {});
Operand linear_dx(Recorder& recorder, Operand dy, Operand weight, Operand accumulator,
                  const LinearOptions& options = {});
Operand linear_dw(Recorder& recorder, Operand x, Operand dy, Operand accumulator, const LinearOptions& options = {});

// The sizes of one op of this family, from its attributes and the types of x (or dy) and W.
struct LinearRows {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};
LinearRows linear_rows(const Attrs& attrs, const ValueType& x);  // checks that they lie in x
bool linear_weight_out_in(const Attrs& attrs);

}  // namespace spillway
