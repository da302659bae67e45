// What column_sums and add_partials compute: plain fp32 sums in the promised order, so kernels equal them to the bit.
#pragma once

#include <cstddef>
#include <vector>

namespace spillway::reference {

// x is (rows, cols); the result is (ceil(rows / block_rows), cols).
inline std::vector<float> column_sums(const std::vector<float>& x, std::size_t cols, std::size_t block_rows) {
  const std::size_t rows = x.size() / cols;
  std::vector<float> sums((rows + block_rows - 1) / block_rows * cols, 0.0F);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) sums[r / block_rows * cols + c] += x[r * cols + c];
  }
  return sums;
}

// partials is (count, cols); the accumulator has cols numbers, or none.
inline std::vector<float> add_partials(const std::vector<float>& partials, std::size_t cols,
                                       const std::vector<float>& accumulator) {
  std::vector<float> sums = accumulator;
  std::size_t begin = 0;
  if (accumulator.empty()) {
    sums.assign(partials.data(), partials.data() + cols);
    begin = 1;
  }
  for (std::size_t n = begin; n * cols < partials.size(); ++n) {
    for (std::size_t c = 0; c < cols; ++c) sums[c] += partials[n * cols + c];
  }
  return sums;
}

}  // namespace spillway::reference
