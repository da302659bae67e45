// f32 to bf16, to nearest with ties to even: the one rounding between an fp32 gradient accumulator and the gradient
// that norm and update read.
#pragma once

#include "program/record.h"

namespace spillway {

// reads x f32 (R, C); writes y bf16 (R, C).
extern const OpSpec round_to_bf16_spec;

Operand round_to_bf16(Recorder& recorder, Operand x);  // (R, C) -> (R, C)

}  // namespace spillway
