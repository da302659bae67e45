// Products C = A·B (+ bias) (+ sum) by kernels of our own, for processors with AVX-512 whose matrix rate is that of
// vector instructions (bf16: AVX512_BF16 and no AMX), where they are faster than the library's.
//
// C is computed in tiles held in registers, 8 x 48 or 6 x 64 elements, each over the whole of k: an element is the sum
// of its products in the order of k (or of pairs of them, Bf16Product::pairs), whatever the tile, task or thread, then
// the bias, then the sum. B is packed in panels as wide as a tile, a block of panels at a time that stays in the
// second-level cache; A is read where it lies, or widened a tile's rows at a time. (The layering is that of Goto and
// van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008, without a split of k.)
#pragma once

#include <cstdint>
#include <span>

#include "ops/matmul/matmul.h"
#include "ops/matmul/scratch_layout.h"

namespace spillway {

// Rows [row, row + rows) and columns [column, column + columns) of C.
struct MatmulPart {
  std::int64_t row = 0;
  std::int64_t rows = 0;
  std::int64_t column = 0;
  std::int64_t columns = 0;
};

class TileMatmul {
 public:
  // Whether this processor and shape are served. Depends on nothing else.
  static bool serves(const MatmulShape& shape);

  // Books its scratch in `layout`.
  TileMatmul(const MatmulShape& shape, ScratchLayout& layout, Bf16Product how = matmul_bf16_product());

  // The grid depends on the shape alone.
  std::int64_t tasks() const { return row_parts_ * column_parts_; }
  MatmulPart part(std::int64_t task) const;

  struct Operands {
    const void* a = nullptr;    // the first row of the part
    std::int64_t a_stride = 0;  // in elements, even; 0: rows are dense. Only with tiles
    const void* b = nullptr;    // the others whole
    const void* bias = nullptr;
    const float* sum = nullptr;  // added to C, may be C; only where the shape accumulates
    void* c = nullptr;
  };
  void run(std::int64_t task, const Operands& operands, std::span<std::byte> scratch) const;

 private:
  void pack_block(const void* b, std::int64_t column, std::int64_t columns, std::uint32_t* to) const;
  void pack_panel(const void* b, std::int64_t column, std::int64_t columns, std::uint32_t* to) const;
  void widen_rows(const std::uint32_t* a, std::int64_t stride, std::int64_t rows, float* to) const;
  void widen_bias(const void* bias, std::int64_t column, std::int64_t columns, float* to) const;

  bool widens() const { return shape_.in == DType::bf16 && how_ == Bf16Product::widened; }

  MatmulShape shape_;
  Bf16Product how_;
  std::int64_t steps_ = 0;          // 32-bit units of a row of A: one f32 or two bf16
  std::int64_t panel_columns_ = 0;  // of a tile
  std::int64_t tile_rows_ = 0;
  std::int64_t block_columns_ = 0;  // of B packed at a time
  std::int64_t row_parts_ = 0;
  std::int64_t part_rows_ = 0;
  std::int64_t column_parts_ = 0;
  std::int64_t part_columns_ = 0;
  std::int64_t packed_ = 0;
  std::int64_t bias_ = 0;
  std::int64_t wide_rows_ = 0;  // of A, wide_stride_ apart; only where it is widened
  std::int64_t wide_stride_ = 0;
};

}  // namespace spillway
