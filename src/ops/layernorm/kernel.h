#pragma once

#include "base/dtype.h"
#include "ops/dispatch.h"

namespace spillway {

template <typename T>
struct LayernormRows {
  const T* x;
  const T* w;
  const T* b;
  T* y;  // may be x
  float* mean;
  float* rstd;
  std::int64_t rows, cols;
  float epsilon;
};

// One block of rows: dx, and the partial sums over them.
template <typename T>
struct LayernormDxBlock {
  const T* x;
  const T* w;
  const float* mean;
  const float* rstd;
  const T* dy;
  T* dx;             // may be x or dy
  float* partial_w;  // cols
  float* partial_b;  // cols
  std::int64_t rows, cols;
};

}  // namespace spillway

SPILLWAY_DECLARE_TARGETS(void layernorm_rows(const LayernormRows<float>& of))
SPILLWAY_DECLARE_TARGETS(void layernorm_rows(const LayernormRows<bf16_t>& of))
SPILLWAY_DECLARE_TARGETS(void layernorm_dx_block(const LayernormDxBlock<float>& of))
SPILLWAY_DECLARE_TARGETS(void layernorm_dx_block(const LayernormDxBlock<bf16_t>& of))
