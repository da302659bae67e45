// A product C = A·B cut in panels of rows of A and C: the tasks of linear layers. The panel size depends on the number
// of rows alone, so the bits are the same for any number of threads.
//
// Where the processor has no bf16 products, a panel of A and blocks of columns of B are widened to f32 and the f32
// product is rounded once at the end.
#pragma once

#include <algorithm>
#include <memory>
#include <span>

#include "ops/matmul/matmul.h"
#include "ops/matmul/scratch_layout.h"

namespace spillway {

// 64, 128 or 256 rows: enough panels for a few threads when there are few rows, less packing of B when there are many.
std::int64_t matmul_panel_rows(std::int64_t rows);

class PanelMatmul {
 public:
  // `shape` is that of the whole product. Books its scratch in `layout`.
  PanelMatmul(const MatmulShape& shape, ScratchLayout& layout);

  const MatmulShape& shape() const { return shape_; }
  std::int64_t panels() const { return divide_up(shape_.m, panel_rows_); }
  std::int64_t panel_rows() const { return panel_rows_; }
  std::int64_t rows_of(std::int64_t panel) const { return std::min(panel_rows_, shape_.m - panel * panel_rows_); }

  // `a` and `c` are the first rows of this panel, `b` and `bias` the whole. `scratch` is the kernel's, of this thread.
  struct Operands {
    const void* a = nullptr;
    const void* b = nullptr;
    const void* bias = nullptr;
    void* c = nullptr;
  };
  void run(std::int64_t panel, const Operands& operands, std::span<std::byte> scratch) const;

 private:
  void make_native(ScratchLayout& layout);
  void make_widened(ScratchLayout& layout);
  void run_native(std::int64_t rows, const Operands& operands, std::span<std::byte> scratch) const;
  void run_widened(std::int64_t rows, const Operands& operands, std::span<std::byte> scratch) const;
  void pack_b_block(const bf16_t* b, std::int64_t column, std::int64_t columns, float* to) const;

  MatmulShape shape_;
  std::int64_t panel_rows_ = 0;
  bool widened_ = false;
  // [last panel or not][last column block or not]; native products have one column block.
  std::unique_ptr<Matmul> products_[2][2];
  std::int64_t product_scratch_ = 0;
  std::int64_t wide_a_ = 0;
  std::int64_t wide_b_ = 0;
  std::int64_t wide_c_ = 0;
};

}  // namespace spillway
