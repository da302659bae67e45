// What swiglu and swiglu_dx compute, in double.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace spillway::reference {

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

inline std::vector<double> swiglu(const std::vector<double>& gate, const std::vector<double>& up) {
  std::vector<double> y(gate.size());
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = gate[i] * sigmoid(gate[i]) * up[i];
  return y;
}

struct SwigluGradients {
  std::vector<double> dgate, dup;
};

inline SwigluGradients swiglu_dx(const std::vector<double>& gate, const std::vector<double>& up,
                                 const std::vector<double>& dy) {
  SwigluGradients out{std::vector<double>(gate.size()), std::vector<double>(gate.size())};
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double s = sigmoid(gate[i]);
    out.dgate[i] = dy[i] * up[i] * s * (1 + gate[i] * (1 - s));
    out.dup[i] = dy[i] * gate[i] * s;
  }
  return out;
}

}  // namespace spillway::reference
