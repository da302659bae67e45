#include "ops/linear/reference.h"

namespace spillway {
namespace {

std::size_t at(std::int64_t row, std::int64_t cols, std::int64_t col) {
  return static_cast<std::size_t>(row * cols + col);
}

}  // namespace

LinearReference::Matrix LinearReference::forward(const Matrix& x, const Matrix& weight, const Matrix& bias) const {
  Matrix y(static_cast<std::size_t>(rows * out));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t o = 0; o < out; ++o) {
      double sum = bias.empty() ? 0 : bias[static_cast<std::size_t>(o)];
      for (std::int64_t i = 0; i < in; ++i) sum += x[at(r, in, i)] * weight[weight_index(o, i)];
      y[at(r, out, o)] = sum;
    }
  }
  return y;
}

LinearReference::Matrix LinearReference::dx(const Matrix& dy, const Matrix& weight) const {
  Matrix dx(static_cast<std::size_t>(rows * in));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t o = 0; o < out; ++o) {
      for (std::int64_t i = 0; i < in; ++i) dx[at(r, in, i)] += dy[at(r, out, o)] * weight[weight_index(o, i)];
    }
  }
  return dx;
}

LinearReference::Matrix LinearReference::dw(const Matrix& x, const Matrix& dy) const {
  Matrix dw(static_cast<std::size_t>(in * out));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t o = 0; o < out; ++o) {
      for (std::int64_t i = 0; i < in; ++i) dw[weight_index(o, i)] += x[at(r, in, i)] * dy[at(r, out, o)];
    }
  }
  return dw;
}

}  // namespace spillway
