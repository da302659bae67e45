// What linear layers compute, in double precision and plain loops: the specification the kernels are tested against.
#pragma once

#include <cstdint>
#include <vector>

namespace spillway {

struct LinearReference {
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
  bool weight_out_in = true;

  using Matrix = std::vector<double>;
  Matrix forward(const Matrix& x, const Matrix& weight, const Matrix& bias) const;  // an empty bias is none
  Matrix dx(const Matrix& dy, const Matrix& weight) const;
  Matrix dw(const Matrix& x, const Matrix& dy) const;

 private:
  std::size_t weight_index(std::int64_t o, std::int64_t i) const {
    return static_cast<std::size_t>(weight_out_in ? o * in + i : i * out + o);
  }
};

}  // namespace spillway
