// What the gradient norm computes, to the bit.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace spillway::reference {

// One reduction block.
inline double sum_squares(const std::vector<float>& grad) {
  std::array<double, 16> lane{};
  for (std::size_t i = 0; i < grad.size(); ++i) lane[i % 16] += static_cast<double>(grad[i]) * grad[i];
  for (std::size_t width = 8; width >= 1; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) lane[i] += lane[i + width];
  }
  return lane[0];
}

inline double norm(const std::vector<double>& block_sums) {
  double sum = 0;
  for (const double block : block_sums) sum += block;
  return std::sqrt(sum);
}

inline float clip_factor(double norm, float max_norm) {
  if (max_norm <= 0) return 1.0F;
  return static_cast<float>(std::min(1.0, static_cast<double>(max_norm) / (norm + 1e-6)));
}

}  // namespace spillway::reference
