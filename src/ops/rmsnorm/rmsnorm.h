// Root-mean-square normalisation (Zhang and Sennrich, arXiv 1910.07467), as in llama: y = w * (x * rstd), in fp32 with
// one rounding. Groups of w's length are normalised, so a row may hold several (per-head q/k norm).
#pragma once

#include "program/record.h"

namespace spillway {

// reads x (R, C) T, w (W, 1) T, with C a multiple of W; attr epsilon; writes y (R, C) T, rstd f32 (R * C / W, 1).
extern const OpSpec rmsnorm_spec;
// reads x, w, rstd, dy (R, C) T; writes dx (R, C) T and partials f32 (ceil(groups / 256), W): the sums of dy * x * rstd
// over each block of 256 groups, in order.
extern const OpSpec rmsnorm_dx_spec;

Operand rmsnorm(Recorder& recorder, Operand x, Operand w, double epsilon);  // (R, C), (W, 1) -> (R, C)

}  // namespace spillway
