// A rectangle of a matrix, copied out. Takes q, k and v apart in generation, and the last row before the head.
#pragma once

#include "program/record.h"

namespace spillway {

// reads x (R, C); attrs row_begin, row_count, col_begin, col_count; writes y (row_count, col_count) of the same dtype.
extern const OpSpec columns_spec;

Operand columns(Recorder& recorder, Operand x, std::int64_t begin, std::int64_t count);  // (R, C) -> (R, count)
Operand row(Recorder& recorder, Operand x, std::int64_t index);                          // (R, C) -> (1, C)

}  // namespace spillway
