// What the embedding ops compute, in plain loops. Matrices are row-major vectors of f32; bf16 is rounded by the caller.
#pragma once

#include <cstdint>
#include <vector>

namespace spillway::reference {

// rows: of the tile; previous may be empty.
inline std::vector<float> embed_rows(const std::vector<std::int32_t>& ids, const std::vector<float>& tile,
                                     const std::vector<float>& previous, std::int64_t row_begin, std::int64_t rows,
                                     std::int64_t cols) {
  std::vector<float> out(ids.size() * static_cast<std::size_t>(cols));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t row = ids[i / static_cast<std::size_t>(cols)] - row_begin;
    const std::size_t col = i % static_cast<std::size_t>(cols);
    const float before = previous.empty() ? 0.0F : previous[i];
    out[i] = row >= 0 && row < rows ? tile[static_cast<std::size_t>(row * cols) + col] : before;
  }
  return out;
}

// accumulator holds rows * cols zeros where the op has none.
inline std::vector<float> embed_grad(const std::vector<std::int32_t>& ids, const std::vector<float>& dx,
                                     std::vector<float> accumulator, std::int64_t row_begin, std::int64_t rows,
                                     std::int64_t cols) {
  for (std::size_t i = 0; i < dx.size(); ++i) {
    const std::int64_t row = ids[i / static_cast<std::size_t>(cols)] - row_begin;
    const std::size_t col = i % static_cast<std::size_t>(cols);
    if (row >= 0 && row < rows) accumulator[static_cast<std::size_t>(row * cols) + col] += dx[i];
  }
  return accumulator;
}

inline std::vector<float> add_positions(std::vector<float> x, const std::vector<float>& weight,
                                        const std::vector<std::int32_t>& positions, std::int64_t cols) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::int64_t position = positions[i / static_cast<std::size_t>(cols)];
    const std::size_t at = static_cast<std::size_t>(position * cols) + i % static_cast<std::size_t>(cols);
    if (position >= 0 && at < weight.size()) x[i] += weight[at];
  }
  return x;
}

}  // namespace spillway::reference
