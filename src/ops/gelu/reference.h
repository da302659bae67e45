// What gelu and gelu_dx compute, in double.
#pragma once

#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

namespace spillway::reference {

inline double gelu_tanh(double x) {
  return std::tanh(std::sqrt(2 * std::numbers::inv_pi) * (x + 0.044715 * x * x * x));
}

inline std::vector<double> gelu(const std::vector<double>& x) {
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = 0.5 * x[i] * (1 + gelu_tanh(x[i]));
  return y;
}

inline std::vector<double> gelu_dx(const std::vector<double>& x, const std::vector<double>& dy) {
  std::vector<double> dx(x.size());
  for (std::size_t i = 0; i < dx.size(); ++i) {
    const double t = gelu_tanh(x[i]);
    const double inner = std::sqrt(2 * std::numbers::inv_pi) * (1 + 3 * 0.044715 * x[i] * x[i]);
    dx[i] = dy[i] * (0.5 * (1 + t) + 0.5 * x[i] * (1 - t * t) * inner);
  }
  return dx;
}

}  // namespace spillway::reference
