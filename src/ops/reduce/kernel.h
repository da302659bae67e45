#pragma once

#include "base/dtype.h"
#include "ops/dispatch.h"

namespace spillway {

// sums[j] = the sum of x[r * stride + j] over r in row order, from 0, for j < cols.
template <typename T>
struct ColumnSums {
  const T* x;
  float* sums;
  std::int64_t rows, cols, stride;
};

// sums[j] = accumulator[j] + partials[j] + partials[stride + j] + …, for j < cols; without an accumulator (null) from
// the first partial on. sums may be the accumulator.
struct AddPartials {
  const float* partials;
  const float* accumulator;
  float* sums;
  std::int64_t count, cols, stride;
};

}  // namespace spillway

SPILLWAY_DECLARE_TARGETS(void sum_columns(const ColumnSums<float>& of))
SPILLWAY_DECLARE_TARGETS(void sum_columns(const ColumnSums<bf16_t>& of))
SPILLWAY_DECLARE_TARGETS(void sum_partials(const AddPartials& of))
