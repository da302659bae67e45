#pragma once

#include "base/dtype.h"
#include "ops/dispatch.h"

// y = a + b over `count` elements; y may be a or b.
SPILLWAY_DECLARE_TARGETS(void add_elements(const float* a, const float* b, float* y, std::int64_t count))
SPILLWAY_DECLARE_TARGETS(void add_elements(const bf16_t* a, const bf16_t* b, bf16_t* y, std::int64_t count))
