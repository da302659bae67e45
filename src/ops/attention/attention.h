// Causal attention of a micro-batch of equally long sequences, with grouped key/value heads, and its gradient. Values
// are f32 or bf16. No T x T matrix exists: a task holds one strip of scores, of one block of queries.
//
// Rows are tokens: sequence b is rows b·T to (b + 1)·T. Query head h uses key/value head h / (heads / kv_heads). In
// packed form (GPT-2) one matrix holds q, k and v side by side in each row.
//
// Exponentials are powers of 2 of scale · log2(e) times a score less the largest of its row. In bf16, exp(score -
// largest score of the row) is rounded to bf16 before it multiplies v, while the divisor is the sum of the unrounded
// terms; in the gradient, the probabilities and the gradients of scores are rounded to bf16 before they are multiplied.
// Everything else is fp32, rounded once where it is written.
#pragma once

#include "program/record.h"

namespace spillway {

// Attributes sequence_length, heads, kv_heads, head_dim; packed = 1 for packed form; scale, a real (1 / sqrt(head_dim)
// without it). reads q [B·T, heads·d], k and v [B·T, kv_heads·d], or qkv [B·T, (heads + 2·kv_heads)·d]; writes o
// [B·T, heads·d] and lse f32 [B·T, heads], the logarithm of the sum of exponentials of each row of scores.
extern const OpSpec attention_spec;

// reads q, k, v (or qkv), o, lse, do; writes dq, dk, dv (or dqkv) in their shapes and dtype.
extern const OpSpec attention_dx_spec;

struct AttentionShape {
  std::int64_t sequence_length = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
};

Operand attention(Recorder& recorder, Operand q, Operand k, Operand v, const AttentionShape& shape);  // -> o
Operand packed_attention(Recorder& recorder, Operand qkv, const AttentionShape& shape);               // -> o

// What the attributes say, checked.
AttentionShape attention_shape(const Attrs& attrs);
bool attention_packed(const Attrs& attrs);
double attention_scale(const Attrs& attrs);

}  // namespace spillway
