// The families as straight-line maths: each function records one part of the model for one micro-batch.
// T tokens of the micro-batch, C hidden size, H heads, K key/value heads, d head size, F intermediate size.
#pragma once

#include <functional>

#include "model/model.h"

namespace spillway {

// Attention proper differs between training (over the micro-batch) and generation (over a cache):
// q (T, H*d), k and v (T, K*d) of this layer -> o (T, H*d).
using Attend = std::function<Operand(std::int64_t layer, Operand q, Operand k, Operand v)>;

struct Tokens {
  Operand ids;                  // i32 (T, 1)
  Operand positions;            // i32 (T, 1)
  Operand inverse_frequencies;  // f32 (d/2, 1); absent without rope
};

// One tile of the embedding: rows of `x` (absent at the first tile) whose id lies in the tile are filled in. -> (T, C)
Operand record_embedding_tile(Recorder& recorder, const Model& model, std::size_t tile, const Tokens& tokens,
                              Operand x);
// Learned positions, in gpt2. (T, C) -> (T, C)
Operand record_positions(Recorder& recorder, const Model& model, const Tokens& tokens, Operand x);
// x + attention(norm(x)). (T, C) -> (T, C)
Operand record_attention(Recorder& recorder, const Model& model, std::int64_t layer, const Tokens& tokens, Operand x,
                         const Attend& attend);
// x + mlp(norm(x)). (T, C) -> (T, C)
Operand record_mlp(Recorder& recorder, const Model& model, std::int64_t layer, Operand x);
// The norm before the head. (T, C) -> (T, C)
Operand record_final_norm(Recorder& recorder, const Model& model, Operand x);

}  // namespace spillway
