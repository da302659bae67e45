// What layernorm and layernorm_dx compute, in double.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace spillway::reference {

struct Layernorm {
  std::vector<double> y, mean, rstd;
};

// x is (rows, w.size()).
inline Layernorm layernorm(const std::vector<double>& x, const std::vector<double>& w, const std::vector<double>& b,
                           double epsilon) {
  const std::size_t cols = w.size();
  const auto n = static_cast<double>(cols);
  const std::size_t rows = x.size() / cols;
  Layernorm out{std::vector<double>(x.size()), std::vector<double>(rows, 0.0), std::vector<double>(rows)};
  for (std::size_t r = 0; r < rows; ++r) {
    const double* row = x.data() + r * cols;
    for (std::size_t i = 0; i < cols; ++i) out.mean[r] += row[i] / n;
    double variance = 0;
    for (std::size_t i = 0; i < cols; ++i) variance += (row[i] - out.mean[r]) * (row[i] - out.mean[r]) / n;
    out.rstd[r] = 1 / std::sqrt(variance + epsilon);
    for (std::size_t i = 0; i < cols; ++i) out.y[r * cols + i] = (row[i] - out.mean[r]) * out.rstd[r] * w[i] + b[i];
  }
  return out;
}

struct LayernormGradients {
  std::vector<double> dx, dw, db;  // dw and db summed over all rows
};

inline LayernormGradients layernorm_dx(const std::vector<double>& x, const std::vector<double>& w,
                                       const Layernorm& forward, const std::vector<double>& dy) {
  const std::size_t cols = w.size();
  const auto count = static_cast<double>(cols);
  LayernormGradients out{std::vector<double>(x.size()), std::vector<double>(cols, 0.0), std::vector<double>(cols, 0.0)};
  for (std::size_t r = 0; r < x.size() / cols; ++r) {
    double mean_h = 0;
    double mean_hn = 0;
    for (std::size_t i = 0; i < cols; ++i) {
      const double g = dy[r * cols + i];
      const double n = (x[r * cols + i] - forward.mean[r]) * forward.rstd[r];
      out.dw[i] += g * n;
      out.db[i] += g;
      mean_h += g * w[i] / count;
      mean_hn += g * w[i] * n / count;
    }
    for (std::size_t i = 0; i < cols; ++i) {
      const double n = (x[r * cols + i] - forward.mean[r]) * forward.rstd[r];
      out.dx[r * cols + i] = forward.rstd[r] * (dy[r * cols + i] * w[i] - mean_h - n * mean_hn);
    }
  }
  return out;
}

}  // namespace spillway::reference
