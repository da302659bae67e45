#pragma once

#include "base/dtype.h"
#include "ops/dispatch.h"

namespace spillway {

// `groups` groups of `width` elements each.
template <typename T>
struct RmsnormGroups {
  const T* x;
  const T* w;
  T* y;  // may be x
  float* rstd;
  std::int64_t groups, width;
  float epsilon;
};

// One block of groups: dx, and the one partial sum over them.
template <typename T>
struct RmsnormDxBlock {
  const T* x;
  const T* w;
  const float* rstd;
  const T* dy;
  T* dx;           // may be x or dy
  float* partial;  // width
  std::int64_t groups, width;
};

}  // namespace spillway

SPILLWAY_DECLARE_TARGETS(void rmsnorm_groups(const RmsnormGroups<float>& of))
SPILLWAY_DECLARE_TARGETS(void rmsnorm_groups(const RmsnormGroups<bf16_t>& of))
SPILLWAY_DECLARE_TARGETS(void rmsnorm_dx_block(const RmsnormDxBlock<float>& of))
SPILLWAY_DECLARE_TARGETS(void rmsnorm_dx_block(const RmsnormDxBlock<bf16_t>& of))
