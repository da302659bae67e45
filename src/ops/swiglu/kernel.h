#pragma once

#include "base/dtype.h"
#include "ops/dispatch.h"

namespace spillway {

template <typename T>
struct SwigluDx {
  const T* gate;
  const T* up;
  const T* dy;
  T* dgate;  // may be gate or dy
  T* dup;    // may be up or dy
  std::int64_t count;
};

}  // namespace spillway

// y = gate * sigmoid(gate) * up over `count` elements; y may be gate or up.
SPILLWAY_DECLARE_TARGETS(void swiglu_elements(const float* gate, const float* up, float* y, std::int64_t count))
SPILLWAY_DECLARE_TARGETS(void swiglu_elements(const bf16_t* gate, const bf16_t* up, bf16_t* y, std::int64_t count))
SPILLWAY_DECLARE_TARGETS(void swiglu_dx_elements(const SwigluDx<float>& of))
SPILLWAY_DECLARE_TARGETS(void swiglu_dx_elements(const SwigluDx<bf16_t>& of))
