// Inner loop of attention over the cache: one query head of one row. T is float or bf16_t.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/dispatch.h"

namespace spillway {

template <typename T>
struct CachedHead {
  const T* q;               // head_dim
  const T* keys;            // row i begins at keys + i * row_stride
  const T* values;          // as keys
  std::int64_t row_stride;  // elements
  std::int64_t rows;        // attended to, at least 1
  std::int64_t head_dim;
  float scale;     // of the scores
  float* scores;   // scratch: rows, rounded up to 16
  float* query;    // scratch: head_dim, rounded up to 16
  float* average;  // scratch: as query
};

}  // namespace spillway

SPILLWAY_DECLARE_TARGETS(template <typename T> void attend_cached(T* out, const CachedHead<T>& head))
