// Layer normalisation (Ba, Kiros and Hinton, arXiv 1607.06450) with weight and bias, the variance being that of the
// population: y = (x - mean) * rstd * w + b, in fp32 with one rounding.
#pragma once

#include "program/record.h"

namespace spillway {

// reads x (R, C) T, w (C, 1) T, b (C, 1) T; attr epsilon; writes y (R, C) T, mean f32 (R, 1), rstd f32 (R, 1).
extern const OpSpec layernorm_spec;
// reads x, w, mean, rstd, dy (R, C) T; writes dx (R, C) T and two partials f32 (ceil(R / 256), C): the sums over each
// block of 256 rows, in row order, of dy * (x - mean) * rstd, for w, and of dy, for b.
extern const OpSpec layernorm_dx_spec;

Operand layernorm(Recorder& recorder, Operand x, Operand w, Operand b, double epsilon);  // (R, C) -> (R, C)

}  // namespace spillway
