// What rmsnorm and rmsnorm_dx compute, in double.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace spillway::reference {

struct Rmsnorm {
  std::vector<double> y, rstd;
};

// x is (groups, w.size()).
inline Rmsnorm rmsnorm(const std::vector<double>& x, const std::vector<double>& w, double epsilon) {
  const std::size_t width = w.size();
  Rmsnorm out{std::vector<double>(x.size()), std::vector<double>(x.size() / width)};
  for (std::size_t g = 0; g < out.rstd.size(); ++g) {
    double squares = 0;
    for (std::size_t i = 0; i < width; ++i) squares += x[g * width + i] * x[g * width + i];
    out.rstd[g] = 1 / std::sqrt(squares / static_cast<double>(width) + epsilon);
    for (std::size_t i = 0; i < width; ++i) out.y[g * width + i] = w[i] * (x[g * width + i] * out.rstd[g]);
  }
  return out;
}

struct RmsnormGradients {
  std::vector<double> dx, dw;  // dw summed over all groups
};

inline RmsnormGradients rmsnorm_dx(const std::vector<double>& x, const std::vector<double>& w,
                                   const std::vector<double>& rstd, const std::vector<double>& dy) {
  const std::size_t width = w.size();
  RmsnormGradients out{std::vector<double>(x.size()), std::vector<double>(width, 0.0)};
  for (std::size_t g = 0; g < rstd.size(); ++g) {
    double mean = 0;
    for (std::size_t i = 0; i < width; ++i) {
      const double scaled = dy[g * width + i] * x[g * width + i] * rstd[g];
      out.dw[i] += scaled;
      mean += scaled * w[i] / static_cast<double>(width);
    }
    for (std::size_t i = 0; i < width; ++i) {
      out.dx[g * width + i] = rstd[g] * (dy[g * width + i] * w[i] - x[g * width + i] * rstd[g] * mean);
    }
  }
  return out;
}

}  // namespace spillway::reference
