// The gated activation of llama (Shazeer, arXiv 2002.05202): y = gate * sigmoid(gate) * up, rounded once.
#pragma once

#include "program/record.h"

namespace spillway {

// reads gate (R, F) T, up (R, F) T; writes y (R, F) T. May share either read.
extern const OpSpec swiglu_spec;
// reads gate, up, dy (R, F) T; writes dgate, dup (R, F) T. dgate may share gate or dy, dup may share up or dy.
extern const OpSpec swiglu_dx_spec;

Operand swiglu(Recorder& recorder, Operand gate, Operand up);  // (R, F), (R, F) -> (R, F)

}  // namespace spillway
