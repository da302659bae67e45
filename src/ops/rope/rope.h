// Rotary position embedding (Su et al., arXiv 2104.09864) with the pairing of Hugging Face's rotate_half: elements i
// and i + d/2 of each head turn by position * inverse_frequency[i]. The angle is reduced in double, so that it stays
// exact to fp32 for positions up to a million; cosines and sines are fp32.
#pragma once

#include "program/record.h"

namespace spillway {

// reads x (R, H * d) T, positions i32 (R, 1), inverse_frequencies f32 (d / 2, 1); attrs head_dim = d and inverse (1:
// turn back); writes y (R, H * d) T. May share x.
extern const OpSpec rope_spec;

// (R, H * d), (R, 1), (d / 2, 1) -> (R, H * d)
Operand rope(Recorder& recorder, Operand x, Operand positions, Operand inverse_frequencies, std::int64_t head_dim);

}  // namespace spillway
