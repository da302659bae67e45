// The tanh form of GELU (Hendrycks and Gimpel, arXiv 1606.08415), Hugging Face's gelu_new:
// y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
#pragma once

#include "program/record.h"

namespace spillway {

// reads x (R, C) T; writes y (R, C) T. May share x.
extern const OpSpec gelu_spec;
// reads x (R, C) T, dy (R, C) T; writes dx (R, C) T. May share either read.
extern const OpSpec gelu_dx_spec;

Operand gelu(Recorder& recorder, Operand x);  // (R, C) -> (R, C)

}  // namespace spillway
