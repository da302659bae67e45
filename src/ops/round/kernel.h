#pragma once

#include "base/dtype.h"
#include "ops/dispatch.h"

SPILLWAY_DECLARE_TARGETS(void round_elements(const float* x, bf16_t* y, std::int64_t count))
