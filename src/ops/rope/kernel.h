#pragma once

#include "base/dtype.h"
#include "ops/dispatch.h"

namespace spillway {

template <typename T>
struct RopeRows {
  const T* x;
  const std::int32_t* positions;
  const float* frequencies;  // head_dim / 2
  T* y;                      // may be x
  float* table;              // head_dim numbers of scratch: the cosines of a row, then its sines
  std::int64_t rows, heads, head_dim;
  bool inverse;
};

}  // namespace spillway

SPILLWAY_DECLARE_TARGETS(void rope_rows(const RopeRows<float>& of))
SPILLWAY_DECLARE_TARGETS(void rope_rows(const RopeRows<bf16_t>& of))
