#pragma once

#include "base/dtype.h"
#include "ops/dispatch.h"

// y = gelu(x) over `count` elements; y may be x.
SPILLWAY_DECLARE_TARGETS(void gelu_elements(const float* x, float* y, std::int64_t count))
SPILLWAY_DECLARE_TARGETS(void gelu_elements(const bf16_t* x, bf16_t* y, std::int64_t count))
// dx = dy * gelu'(x); dx may be x or dy.
SPILLWAY_DECLARE_TARGETS(void gelu_dx_elements(const float* x, const float* dy, float* dx, std::int64_t count))
SPILLWAY_DECLARE_TARGETS(void gelu_dx_elements(const bf16_t* x, const bf16_t* dy, bf16_t* dx, std::int64_t count))
