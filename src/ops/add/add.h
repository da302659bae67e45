// y = a + b, rounded once. Residual connections, and the sum of two gradients of one activation.
#pragma once

#include "program/record.h"

namespace spillway {

// reads a (R, C) T, b (R, C) T; writes y (R, C) T. May share either read.
extern const OpSpec add_spec;

Operand add(Recorder& recorder, Operand a, Operand b);  // (R, C), (R, C) -> (R, C)

}  // namespace spillway
