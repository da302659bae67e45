// What rope computes, in double.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace spillway::reference {

// x is (positions.size(), heads * 2 * frequencies.size()); inverse turns back.
inline std::vector<double> rope(const std::vector<double>& x, const std::vector<double>& positions,
                                const std::vector<double>& frequencies, bool inverse) {
  const std::size_t half = frequencies.size();
  const std::size_t heads = x.size() / positions.size() / (2 * half);
  std::vector<double> y(x.size());
  for (std::size_t r = 0; r < positions.size(); ++r) {
    for (std::size_t h = 0; h < heads; ++h) {
      const std::size_t at = (r * heads + h) * 2 * half;
      for (std::size_t i = 0; i < half; ++i) {
        const double angle = positions[r] * frequencies[i] * (inverse ? -1 : 1);
        const double a = x[at + i];
        const double b = x[at + half + i];
        y[at + i] = a * std::cos(angle) - b * std::sin(angle);
        y[at + half + i] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  }
  return y;
}

}  // namespace spillway::reference
