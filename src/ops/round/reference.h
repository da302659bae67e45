// What round_to_bf16 computes: round_bf16 of base/dtype.h, element by element.
#pragma once

#include <vector>

#include "base/dtype.h"

namespace spillway::reference {

inline std::vector<bf16_t> round_to_bf16(const std::vector<float>& x) {
  std::vector<bf16_t> y;
  for (const float value : x) y.push_back(round_bf16(value));
  return y;
}

}  // namespace spillway::reference
