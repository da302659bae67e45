#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "ops/matmul/pack.h"
#include "ops/matmul/panel_matmul.h"

namespace spillway {
namespace {

// Columns of B that are widened at a time where the library has no bf16 products.
constexpr std::int64_t widened_columns = 256;

}  // namespace

std::int64_t matmul_panel_rows(std::int64_t rows) {
  if (rows <= 256) return 64;
  return rows <= 1024 ? 128 : 256;
}

PanelMatmul::PanelMatmul(const MatmulShape& shape, ScratchLayout& layout)
    : shape_(shape),
      panel_rows_(std::min(shape.m, matmul_panel_rows(shape.m))),
      widened_(shape.in == DType::bf16 && !matmul_has_bf16()) {
  if (TileMatmul::serves(shape)) {
    tiles_.emplace(shape, layout);
  } else if (widened_) {
    make_widened(layout);
  } else {
    make_native(layout);
  }
}

void PanelMatmul::make_native(ScratchLayout& layout) {
  std::int64_t scratch_bytes = 0;
  for (const std::int64_t panel : {std::int64_t{0}, divide_up(shape_.m, panel_rows_) - 1}) {
    MatmulShape shape = shape_;
    shape.m = part(panel).rows;
    auto& product = products_[shape.m == panel_rows_ ? 0 : 1][0];
    if (product == nullptr) product = std::make_unique<Matmul>(shape);
    scratch_bytes = std::max(scratch_bytes, product->scratch_bytes());
  }
  product_scratch_ = layout.take(scratch_bytes);
}

void PanelMatmul::make_widened(ScratchLayout& layout) {
  const std::int64_t block = std::min(shape_.n, widened_columns);
  std::int64_t scratch_bytes = 0;
  for (const std::int64_t panel : {std::int64_t{0}, divide_up(shape_.m, panel_rows_) - 1}) {
    for (const std::int64_t columns : {block, shape_.n % block}) {
      if (columns == 0) continue;
      const std::int64_t rows = part(panel).rows;
      auto& product = products_[rows == panel_rows_ ? 0 : 1][columns == block ? 0 : 1];
      if (product != nullptr) continue;
      product = std::make_unique<Matmul>(
          MatmulShape{.m = rows, .n = columns, .k = shape_.k, .transposed_b = shape_.transposed_b});
      scratch_bytes = std::max(scratch_bytes, product->scratch_bytes());
    }
  }
  constexpr std::int64_t f32_bytes = size_of(DType::f32);
  product_scratch_ = layout.take(scratch_bytes);
  wide_a_ = layout.take(panel_rows_ * shape_.k * f32_bytes);
  wide_b_ = layout.take(block * shape_.k * f32_bytes);
  wide_c_ = layout.take((panel_rows_ + 1) * block * f32_bytes);
}

MatmulPart PanelMatmul::part(std::int64_t task) const {
  if (tiles_) return tiles_->part(task);
  const std::int64_t row = task * panel_rows_;
  return {row, std::min(panel_rows_, shape_.m - row), 0, shape_.n};
}

std::int64_t PanelMatmul::compiled_products() const {
  std::int64_t count = 0;
  for (const auto& of_panel : products_)
    count += std::count_if(of_panel, of_panel + 2, [](const auto& p) { return p != nullptr; });
  return count;
}

std::int64_t PanelMatmul::copied_row_stride() const {
  // A line more than k, rounded up: rows a power of two apart would share few sets of the cache.
  return tiles_ ? round_up(shape_.k, 64) + 32 : shape_.k;
}

void PanelMatmul::run(std::int64_t task, const TileMatmul::Operands& operands, std::span<std::byte> scratch) const {
  if (tiles_) {
    tiles_->run(task, operands, scratch);
    return;
  }
  const MatmulPart part = this->part(task);
  TileMatmul::Operands panel = operands;
  const std::int64_t place = part.row * shape_.n;
  panel.c = static_cast<std::byte*>(operands.c) + place * size_of(shape_.out);
  if (shape_.accumulate && operands.sum != operands.c) {
    std::memcpy(panel.c, operands.sum + place, static_cast<std::size_t>(part.rows * shape_.n) * sizeof(float));
  }
  if (widened_) {
    run_widened(part.rows, panel, scratch);
  } else {
    run_native(part.rows, panel, scratch);
  }
}

void PanelMatmul::run_native(std::int64_t rows, const TileMatmul::Operands& operands,
                             std::span<std::byte> scratch) const {
  products_[rows == panel_rows_ ? 0 : 1][0]->run({.a = operands.a,
                                                  .b = operands.b,
                                                  .bias = operands.bias,
                                                  .c = operands.c,
                                                  .scratch = scratch_part(scratch, product_scratch_)});
}

void PanelMatmul::pack_b_block(const bf16_t* b, std::int64_t column, std::int64_t columns, float* to) const {
  const PackKernels& pack = pack_kernels();
  if (shape_.transposed_b) {
    pack.widen(b + column * shape_.k, columns * shape_.k, to);
    return;
  }
  for (std::int64_t row = 0; row < shape_.k; ++row) {
    pack.widen(b + row * shape_.n + column, columns, to + row * columns);
  }
}

void PanelMatmul::run_widened(std::int64_t rows, const TileMatmul::Operands& operands,
                              std::span<std::byte> scratch) const {
  const PackKernels& pack = pack_kernels();
  const std::int64_t block = std::min(shape_.n, widened_columns);
  float* const a = scratch_part<float>(scratch, wide_a_);
  float* const b = scratch_part<float>(scratch, wide_b_);
  float* const c = scratch_part<float>(scratch, wide_c_);
  float* const bias = c + panel_rows_ * block;
  pack.widen(static_cast<const bf16_t*>(operands.a), rows * shape_.k, a);
  for (std::int64_t column = 0; column < shape_.n; column += block) {
    const std::int64_t columns = std::min(block, shape_.n - column);
    pack_b_block(static_cast<const bf16_t*>(operands.b), column, columns, b);
    products_[rows == panel_rows_ ? 0 : 1][columns == block ? 0 : 1]->run(
        {.a = a, .b = b, .c = c, .scratch = scratch_part(scratch, product_scratch_)});
    if (shape_.has_bias) {
      const void* const from = bytes_at(operands.bias, column * size_of(shape_.bias));
      if (shape_.bias == DType::bf16) {
        pack.widen(static_cast<const bf16_t*>(from), columns, bias);
      } else {
        std::memcpy(bias, from, static_cast<std::size_t>(columns) * sizeof(float));
      }
    }
    for (std::int64_t row = 0; row < rows; ++row) {
      float* const result = c + row * columns;
      const std::int64_t place = row * shape_.n + column;
      if (shape_.has_bias) pack.add(bias, columns, result);
      if (shape_.out == DType::bf16) {
        pack.narrow(result, columns, static_cast<bf16_t*>(operands.c) + place);
      } else if (shape_.accumulate) {
        pack.add(result, columns, static_cast<float*>(operands.c) + place);
      } else {
        std::memcpy(static_cast<float*>(operands.c) + place, result, static_cast<std::size_t>(columns) * sizeof(float));
      }
    }
  }
}

}  // namespace spillway
