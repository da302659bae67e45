// Products C = A·B (+ bias) (+ sum) by kernels of our own, for processors with AVX2, AVX-512 or AMX, where they are
// faster than the library's.
//
// C is computed in tiles held in registers, 8 x 48 or 6 x 64 elements with AVX-512, 6 x 16 with AVX2, 32 x 32 with AMX:
// an element is the sum of its products in the order of k (or of pairs of them, Bf16Product::pairs, or of 32, where
// even ones and odd ones are added up first, Bf16Product::amx), whatever the tile, task or thread, then the bias, then
// the sum.
// B is packed in panels as wide as a tile (half a tile with AMX), a block of panels at a time that stays in the
// second-level cache; A is read where it lies. Where bf16 is widened, packing widens B, and A is widened a tile's rows
// at a time. A long k is taken in chunks, and with AMX in blocks of several chunks, whose sums wait in scratch, so that
// a strip of A stays in the first-level cache; this changes no bit. (The layering is that of Goto and van de Geijn,
// "Anatomy of High-Performance Matrix Multiplication", 2008.)
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

// What may be left out of a product, from row r: of C, columns that nobody reads, or of A, columns that are zero.
// Columns of a tile that is begun are computed; bits change only where a zero meets what is not finite.
enum class Triangle {
  none,
  c_up_to_row,  // C[r][c] is read for c <= r
  c_from_row,   // for c >= r
  a_up_to_row,  // A[r][k] is zero but for k <= r; k is a single block
  a_from_row,   // but for k >= r
};

class AmxTiles;

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
    const void* a = nullptr;                  // the first row of the part
    std::int64_t a_stride = 0;                // in elements, even; 0: rows are dense. Only with tiles
    const void* b = nullptr;                  // the others whole
    const std::uint32_t* packed_b = nullptr;  // instead of b: what pack_b wrote
    const void* bias = nullptr;
    const float* sum = nullptr;  // added to C, may be C; only where the shape accumulates
    void* c = nullptr;
    Triangle triangle = Triangle::none;
  };
  void run(std::int64_t task, const Operands& operands, std::span<std::byte> scratch) const;

  // B packed once for many products. Rows of B as it is stored are b_stride elements apart, an even number.
  std::int64_t packed_b_bytes() const;
  void pack_b(const void* b, std::int64_t b_stride, std::uint32_t* to) const;

 private:
  struct Steps {
    std::int64_t first, count;
  };
  struct Block {
    std::int64_t column, columns;
    Steps steps;
    const std::uint32_t* packed = nullptr;  // its part of B, once it is
  };
  struct Extent {
    std::int64_t first_column, end_column;
    Steps steps;  // of the block's
  };
  // What is computed of the tile of these rows.
  Extent extent_of(Triangle triangle, std::int64_t first_row, std::int64_t end_row, const Steps& steps) const;
  // Calls `visit` for each block of these columns.
  template <typename Visit>
  void for_blocks(std::int64_t column, std::int64_t columns, const Visit& visit) const;
  bool is_last(const Block& block) const { return block.steps.first + block.steps.count == steps_; }
  void run_block(const MatmulPart& part, Block block, const Operands& operands, std::span<std::byte> scratch,
                 AmxTiles* registers) const;
  // A tile's rows of a block, from `row` of the part on.
  void run_rows(std::int64_t row, const MatmulPart& part, const Block& block, const Operands& operands,
                std::span<std::byte> scratch, AmxTiles* registers) const;
  struct Stored {
    const void* b;
    std::int64_t stride;  // in elements
  };
  std::int64_t b_stride() const { return shape_.transposed_b ? shape_.k : shape_.n; }
  std::int64_t place_of(const Block& block) const;  // in all of B packed
  void pack_block(const Stored& stored, const Block& block, std::uint32_t* to) const;
  void pack_rows(const Stored& stored, const Block& block, std::uint32_t* to) const;
  void pack_columns(const Stored& stored, const Block& block, std::int64_t column, std::int64_t columns,
                    std::uint32_t* to) const;
  struct Rows {
    const std::uint32_t* units;
    std::int64_t stride;  // in units
  };
  // What tiles read of these rows and steps: themselves, widened, or copied with zeros where rows are missing.
  Rows rows_of(const std::byte* a, std::int64_t stride_bytes, std::int64_t rows, const Steps& steps,
               std::span<std::byte> scratch) const;
  void widen_bias(const void* bias, std::int64_t column, std::int64_t columns, float* to) const;

  bool widens() const { return unit_ != shape_.in; }
  bool uses_amx() const { return how_ == Bf16Product::amx; }

  MatmulShape shape_;
  Bf16Product how_;         // widened for f32
  DType unit_;              // of what tiles multiply
  std::int64_t steps_ = 0;  // 32-bit units of a row of A: one f32 or two bf16
  std::int64_t tile_columns_ = 0;
  std::int64_t panel_columns_ = 0;  // of B packed, one or two panels a tile
  std::int64_t tile_rows_ = 0;
  std::int64_t tile_steps_ = 0;
  std::int64_t block_steps_ = 0;  // of B packed at a time
  std::int64_t chunk_steps_ = 0;  // that tiles multiply at a time
  std::int64_t block_columns_ = 0;
  std::int64_t row_parts_ = 0;
  std::int64_t part_rows_ = 0;
  std::int64_t column_parts_ = 0;
  std::int64_t part_columns_ = 0;
  std::int64_t packed_ = 0;
  std::int64_t bias_ = 0;
  std::int64_t sums_ = 0;      // where there are several chunks, of a block's columns, and a part's rows or a tile's
  std::int64_t own_rows_ = 0;  // of A, own_stride_ units apart; only where it is widened or may lack rows
  std::int64_t own_stride_ = 0;
};

}  // namespace spillway
