#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "ops/matmul/pack.h"
#include "ops/matmul/register_tile.h"
#include "ops/matmul/tile_matmul.h"

namespace spillway {
namespace {

constexpr std::int64_t unit_bytes = 4;
constexpr std::int64_t line_floats = 16;  // of the cache
// Of a packed block of B, beside a strip of A in a second-level cache of 1 MiB.
constexpr std::int64_t block_bytes = 640 * kib;
// More rows share one packing of B, fewer make more tasks.
constexpr std::int64_t most_part_rows = 512;
constexpr std::int64_t fewest_tasks = 8;
constexpr std::int64_t least_part_columns = 192;
constexpr std::int64_t most_part_columns = 1536;
// Packing B is not worth it for a few rows.
constexpr std::int64_t fewest_rows = 16;

const std::byte* bytes_at(const void* base, std::int64_t offset_bytes) {
  return static_cast<const std::byte*>(base) + offset_bytes;
}

// `count` cut in `parts`, rounded up to whole `unit`s.
std::int64_t even_part(std::int64_t count, std::int64_t parts, std::int64_t unit) {
  return round_up(divide_up(count, parts), unit);
}

}  // namespace

bool TileMatmul::serves(const MatmulShape& shape) {
  const bool whole_units = shape.in == DType::f32 || shape.k % 2 == 0;
  const bool types = shape.in == DType::bf16 || (shape.out == DType::f32 && shape.bias == DType::f32);
  return whole_units && types && shape.m >= fewest_rows && matmul_prefers_tiles(shape.in);
}

TileMatmul::TileMatmul(const MatmulShape& shape, ScratchLayout& layout, Bf16Product how)
    : shape_(shape),
      how_(how),
      steps_(shape.k * size_of(shape.in) / unit_bytes),
      panel_columns_(shape.n % 64 == 0 && shape.n % 48 != 0 ? 64 : 48),
      tile_rows_(panel_columns_ == 64 ? 6 : 8) {
  row_parts_ = divide_up(shape.m, most_part_rows);
  part_rows_ = even_part(shape.m, row_parts_, tile_rows_);
  row_parts_ = divide_up(shape.m, part_rows_);
  const std::int64_t wanted = std::max(divide_up(shape.n, most_part_columns), divide_up(fewest_tasks, row_parts_));
  part_columns_ = even_part(shape.n, std::min(wanted, divide_up(shape.n, least_part_columns)), panel_columns_);
  column_parts_ = divide_up(shape.n, part_columns_);
  const std::int64_t panels = part_columns_ / panel_columns_;
  const std::int64_t fit = std::max<std::int64_t>(1, block_bytes / (steps_ * panel_columns_ * unit_bytes));
  block_columns_ = even_part(panels, divide_up(panels, fit), 1) * panel_columns_;
  packed_ = layout.take(block_columns_ * steps_ * unit_bytes);
  bias_ = layout.take(block_columns_ * size_of(DType::f32));
  if (!widens()) return;
  wide_stride_ = round_up(shape.k, line_floats) + line_floats;  // rows a power of two apart would share few sets
  wide_rows_ = layout.take(tile_rows_ * wide_stride_ * size_of(DType::f32));
}

MatmulPart TileMatmul::part(std::int64_t task) const {
  const std::int64_t row = task / column_parts_ * part_rows_;
  const std::int64_t column = task % column_parts_ * part_columns_;
  return {row, std::min(part_rows_, shape_.m - row), column, std::min(part_columns_, shape_.n - column)};
}

void TileMatmul::run(std::int64_t task, const Operands& operands, std::span<std::byte> scratch) const {
  const MatmulPart part = this->part(task);
  auto* const packed = scratch_part<std::uint32_t>(scratch, packed_);
  auto* const bias = scratch_part<float>(scratch, bias_);
  const auto* const a = static_cast<const std::uint32_t*>(operands.a);
  const std::int64_t stride = operands.a_stride == 0 ? steps_ : operands.a_stride * size_of(shape_.in) / unit_bytes;
  auto* const wide = widens() ? scratch_part<float>(scratch, wide_rows_) : nullptr;
  const RegisterTileKernel whole = register_tile_kernel(shape_.in, how_, shape_.out, panel_columns_, tile_rows_);
  const std::int64_t end = part.column + part.columns;
  for (std::int64_t block = part.column; block < end; block += block_columns_) {
    const std::int64_t block_end = std::min(end, block + block_columns_);
    pack_block(operands.b, block, block_end - block, packed);
    if (shape_.has_bias) widen_bias(operands.bias, block, block_end - block, bias);
    for (std::int64_t row = 0; row < part.rows; row += tile_rows_) {
      const std::int64_t rows = std::min(tile_rows_, part.rows - row);
      const RegisterTileKernel kernel =
          rows == tile_rows_ ? whole : register_tile_kernel(shape_.in, how_, shape_.out, panel_columns_, rows);
      if (widens()) widen_rows(a + row * stride, stride, rows, wide);
      for (std::int64_t column = block; column < block_end; column += panel_columns_) {
        const std::int64_t at = (part.row + row) * shape_.n + column;
        kernel({.a = widens() ? reinterpret_cast<const std::uint32_t*>(wide) : a + row * stride,
                .a_stride = widens() ? wide_stride_ : stride,
                .b = packed + (column - block) * steps_,
                .steps = steps_,
                .bias = shape_.has_bias ? bias + (column - block) : nullptr,
                .sum = shape_.accumulate ? operands.sum + at : nullptr,
                .c = static_cast<std::byte*>(operands.c) + at * size_of(shape_.out),
                .c_stride = shape_.n,
                .columns = std::min(panel_columns_, block_end - column)});
      }
    }
  }
}

// Panels of [step][column]; columns that do not exist are zero.
void TileMatmul::pack_block(const void* b, std::int64_t column, std::int64_t columns, std::uint32_t* to) const {
  if (const std::int64_t last = columns % panel_columns_; last > 0) {
    std::memset(to + (columns - last) * steps_, 0, static_cast<std::size_t>(panel_columns_ * steps_ * unit_bytes));
  }
  if (shape_.in == DType::bf16 && !shape_.transposed_b) {
    const auto* const from = static_cast<const std::uint16_t*>(b) + column;
    pack_kernels().pair_rows(from, shape_.n, steps_, columns, panel_columns_, to);
    return;
  }
  for (std::int64_t first = 0; first < columns; first += panel_columns_) {
    pack_panel(b, column + first, std::min(panel_columns_, columns - first), to + first * steps_);
  }
}

void TileMatmul::pack_panel(const void* b, std::int64_t column, std::int64_t columns, std::uint32_t* to) const {
  if (shape_.transposed_b) {
    const auto* const from = static_cast<const std::uint32_t*>(b) + column * steps_;
    pack_kernels().transpose32(from, steps_, columns, steps_, to, panel_columns_);
    return;
  }
  const auto* const from = static_cast<const std::uint32_t*>(b) + column;
  for (std::int64_t step = 0; step < steps_; ++step) {
    std::memcpy(to + step * panel_columns_, from + step * shape_.n, static_cast<std::size_t>(columns * unit_bytes));
  }
}

void TileMatmul::widen_rows(const std::uint32_t* a, std::int64_t stride, std::int64_t rows, float* to) const {
  for (std::int64_t r = 0; r < rows; ++r)
    pack_kernels().widen(reinterpret_cast<const bf16_t*>(a + r * stride), shape_.k, to + r * wide_stride_);
}

void TileMatmul::widen_bias(const void* bias, std::int64_t column, std::int64_t columns, float* to) const {
  const std::byte* const from = bytes_at(bias, column * size_of(shape_.bias));
  std::memset(to, 0, static_cast<std::size_t>(round_up(columns, panel_columns_)) * sizeof(float));
  if (shape_.bias == DType::bf16) {
    pack_kernels().widen(reinterpret_cast<const bf16_t*>(from), columns, to);
  } else {
    std::memcpy(to, from, static_cast<std::size_t>(columns) * sizeof(float));
  }
}

}  // namespace spillway
