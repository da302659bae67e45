// Inner loop of the gradient norm. T is float or bf16_t.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/dispatch.h"

SPILLWAY_DECLARE_TARGETS(template <typename T> double block_sum_squares(const T* grad, std::int64_t count))
