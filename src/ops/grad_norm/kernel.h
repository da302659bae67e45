// Inner loop of the gradient norm. T is float or bf16_t. `ahead`: elements between those in use and the line that is
// asked for; 0: none is.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/dispatch.h"

SPILLWAY_DECLARE_TARGETS(template <typename T>
                         double block_sum_squares(const T* grad, std::int64_t count, std::int64_t ahead))
