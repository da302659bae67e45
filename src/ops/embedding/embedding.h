// Embedding rows in tiles of the vocabulary, their gradient, and learned positions (GPT-2).
// R tokens, C width, N rows of a tile, V vocabulary, P positions; T is f32 or bf16.
#pragma once

#include "program/record.h"

namespace spillway {

extern const OpSpec embed_rows_spec;
extern const OpSpec embed_grad_spec;
extern const OpSpec add_positions_spec;

// ids i32 (R, 1), tile T (N, C), previous T (R, C) or absent -> T (R, C).
// The tile holds vocabulary rows [row_begin, row_begin + N). A row whose id lies there is copied from the tile, others
// from `previous`, or are zero without one. May be done in place of `previous`: only rows of the tile are then touched.
// The gradient of the tile is embed_grad.
Operand embed_rows(Recorder& recorder, Operand ids, Operand tile, std::int64_t row_begin, Operand previous = {});

// ids i32 (R, 1), dx T (R, C), accumulator f32 (rows, C) or absent -> f32 (rows, C), may be in place of it.
// accumulator[id - row_begin] += dx row, for tokens in ascending order, ids outside [row_begin, row_begin + rows)
// skipped. Without an accumulator rows start at zero.
Operand embed_grad(Recorder& recorder, Operand ids, Operand dx, std::int64_t row_begin, std::int64_t rows,
                   Operand accumulator = {});

// x T (R, C), weight T (P, C), positions i32 (R, 1) -> T (R, C): x + weight[position], rounded once; x alone where the
// position is not in [0, P). May be in place of x. The gradient of the weight is embed_grad by position.
Operand add_positions(Recorder& recorder, Operand x, Operand weight, Operand positions);

}  // namespace spillway
