// A product C = A·B cut in parts: the tasks of linear layers. Where tile_matmul.h does not serve, the parts are panels
// of rows, each one product of the library; their size depends on the number of rows alone, so the bits are the same
// for any number of threads.
//
// Where the library has no bf16 products, a panel of A and blocks of columns of B are widened to f32 and the f32
// product is rounded once at the end.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>

#include "ops/matmul/matmul.h"
#include "ops/matmul/scratch_layout.h"
#include "ops/matmul/tile_matmul.h"

namespace spillway {

// 64, 128 or 256 rows: enough panels for a few threads when there are few rows, less packing of B when there are many.
std::int64_t matmul_panel_rows(std::int64_t rows);

class PanelMatmul {
 public:
  // `shape` is that of the whole product. Books its scratch in `layout`.
  PanelMatmul(const MatmulShape& shape, ScratchLayout& layout);

  const MatmulShape& shape() const { return shape_; }
  // The grid depends on the shape alone.
  std::int64_t tasks() const { return tiles_ ? tiles_->tasks() : divide_up(shape_.m, panel_rows_); }
  MatmulPart part(std::int64_t task) const;
  std::int64_t compiled_products() const;  // by the library
  std::int64_t most_part_rows() const { return part(0).rows; }
  // Distance at which rows of A that are copied for a part are best laid down, in elements: `a_stride` of run.
  std::int64_t copied_row_stride() const;

  // `scratch` is the kernel's, of this thread.
  void run(std::int64_t task, const TileMatmul::Operands& operands, std::span<std::byte> scratch) const;

 private:
  void make_native(ScratchLayout& layout);
  void make_widened(ScratchLayout& layout);
  void run_native(std::int64_t rows, const TileMatmul::Operands& operands, std::span<std::byte> scratch) const;
  void run_widened(std::int64_t rows, const TileMatmul::Operands& operands, std::span<std::byte> scratch) const;
  void pack_b_block(const bf16_t* b, std::int64_t column, std::int64_t columns, float* to) const;

  MatmulShape shape_;
  std::int64_t panel_rows_ = 0;
  bool widened_ = false;
  std::optional<TileMatmul> tiles_;  // otherwise panels
  // [last panel or not][last column block or not]; native products have one column block.
  std::unique_ptr<Matmul> products_[2][2];
  std::int64_t product_scratch_ = 0;
  std::int64_t wide_a_ = 0;
  std::int64_t wide_b_ = 0;
  std::int64_t wide_c_ = 0;
};

}  // namespace spillway
