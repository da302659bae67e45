// What add computes, in double.
#pragma once

#include <cstddef>
#include <vector>

namespace spillway::reference {

inline std::vector<double> add(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> y(a.size());
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = a[i] + b[i];
  return y;
}

}  // namespace spillway::reference
