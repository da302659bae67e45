// Moving parts of matrices between their places in memory and the dense blocks that products read and write. Strides
// are in elements. Each function is compiled for every named target; all give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace spillway {

struct PackKernels {
  // to[c * to_stride + r] = from[r * from_stride + c], for elements of 2 and 4 bytes.
  void (*transpose16)(const std::uint16_t* from, std::int64_t from_stride, std::int64_t rows, std::int64_t cols,
                      std::uint16_t* to, std::int64_t to_stride);
  void (*transpose32)(const std::uint32_t* from, std::int64_t from_stride, std::int64_t rows, std::int64_t cols,
                      std::uint32_t* to, std::int64_t to_stride);
  // The same of bf16, widened.
  void (*transpose_widened)(const std::uint16_t* from, std::int64_t from_stride, std::int64_t rows, std::int64_t cols,
                            std::uint32_t* to, std::int64_t to_stride);
  // Pairs of rows of 16-bit elements in panels of `panel` columns, the last perhaps shorter (what it lacks is left as
  // it is): to[(c / panel · pairs + r) · panel + c % panel] = from[2r · from_stride + c] | from[(2r + 1) · from_stride
  // + c] << 16.
  void (*pair_rows)(const std::uint16_t* from, std::int64_t from_stride, std::int64_t pairs, std::int64_t cols,
                    std::int64_t panel, std::uint32_t* to);
  // Rows of bf16, widened, in the same panels: to[(c / panel · rows + r) · panel + c % panel] = from[r · from_stride +
  // c] << 16.
  void (*widen_rows)(const std::uint16_t* from, std::int64_t from_stride, std::int64_t rows, std::int64_t cols,
                     std::int64_t panel, std::uint32_t* to);
  // Rows of units, as they are, in the same panels.
  void (*unit_rows)(const std::uint32_t* from, std::int64_t from_stride, std::int64_t rows, std::int64_t cols,
                    std::int64_t panel, std::uint32_t* to);
  void (*widen)(const bf16_t* from, std::int64_t count, float* to);
  // to = round(from).
  void (*narrow)(const float* from, std::int64_t count, bf16_t* to);
  // row[i] += addend[i].
  void (*add)(const float* addend, std::int64_t count, float* row);
};

const PackKernels& pack_kernels();

inline const std::byte* bytes_at(const void* base, std::int64_t offset_bytes) {
  return static_cast<const std::byte*>(base) + offset_bytes;
}

}  // namespace spillway
