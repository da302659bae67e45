// Keys and values of the tokens generated so far, and attention over them.
// R fresh tokens, M rows of the cache (row i holds position i), C = kv_heads * head_dim; T is f32 or bf16.
#pragma once

#include "program/record.h"

namespace spillway {

extern const OpSpec kv_append_spec;
extern const OpSpec kv_attention_spec;

// cache T (M, C), fresh T (R, C), positions i32 (R, 1) -> `into`, the next version of the cache, T (M, C): row
// positions[r] is fresh row r (of equal positions the last wins), rows with a position outside [0, M) are skipped. In
// place of the cache only those rows are touched.
void kv_append(Recorder& recorder, Operand cache, Operand fresh, Operand positions, Operand into);

struct HeadShape {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // divides heads
  std::int64_t head_dim = 0;
};

// q T (R, heads * head_dim), keys and values T (M, C), positions i32 (R, 1) -> T (R, heads * head_dim).
// Row r attends to rows 0 to positions[r] of the cache, with scores scaled by 1 / sqrt(head_dim); query head h uses
// kv head h / (heads / kv_heads). A row with position -1 is zero. positions[r] < M.
Operand kv_attention(Recorder& recorder, Operand q, Operand keys, Operand values, Operand positions,
                     const HeadShape& shape);

}  // namespace spillway
