// Inner loops of the embedding ops: one row, or a range of its columns. T is float or bf16_t.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/dispatch.h"

// accumulator += wide(dx).
SPILLWAY_DECLARE_TARGETS(template <typename T>
                         void accumulate_embedding(float* accumulator, const T* dx, std::int64_t count))
// out = x + weight, rounded to T; out may be x.
SPILLWAY_DECLARE_TARGETS(template <typename T>
                         void add_position(T* out, const T* x, const T* weight, std::int64_t count))
