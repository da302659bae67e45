// What attention and its gradient share on the CPU: where heads lie in their operands, blocks of rows copied and packed
// from there, and the products of blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>

#include "base/error.h"
#include "ops/attention/attention.h"
#include "ops/attention/cpu.h"
#include "ops/attention/softmax.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/pack.h"
#include "ops/matmul/scratch_layout.h"
#include "ops/matmul/tile_matmul.h"

namespace spillway::attention_blocks {

inline constexpr double log2_e = 1.4426950408889634074;

// Columns of one head in a matrix of D.
template <typename D>
struct HeadRows {
  D* first = nullptr;  // row 0 of the head's sequence
  std::int64_t stride = 0;

  D* row(std::int64_t r) const { return first + r * stride; }
};

// The sizes of an op, and where the heads lie in its operands.
struct Grid {
  explicit Grid(const KernelKey& key)
      : shape(attention_shape(key.attrs)),
        packed(attention_packed(key.attrs)),
        scale(static_cast<float>(attention_scale(key.attrs))),
        factor(static_cast<float>(attention_scale(key.attrs) * log2_e)),
        sequences(key.reads[0].rows / shape.sequence_length),
        block(std::min(attention_block_rows, round_up(shape.sequence_length, 16))),
        blocks(divide_up(shape.sequence_length, block)),
        block_elements(block * shape.head_dim) {
    SPILLWAY_CHECK(scale > 0, "a scale of {}", scale);
  }

  SoftmaxBlock softmax(bool diagonal) const {
    return {.size = block, .diagonal = diagonal, .scale = scale, .factor = factor};
  }
  std::int64_t group() const { return shape.heads / shape.kv_heads; }
  std::int64_t rows_of(std::int64_t index) const { return std::min(block, shape.sequence_length - index * block); }

  enum class Part { q, k, v };
  // `operands` are q, k, v, or qkv alone.
  template <typename D, typename Byte>
  HeadRows<D> head(std::span<Byte* const> operands, Part part, std::int64_t sequence, std::int64_t head) const {
    const auto index = static_cast<std::size_t>(part);
    const std::int64_t starts[] = {0, shape.heads, shape.heads + shape.kv_heads, shape.heads + 2 * shape.kv_heads};
    const std::int64_t heads = packed ? starts[3] : starts[index + 1] - starts[index];
    const std::int64_t stride = heads * shape.head_dim;
    const std::int64_t column = ((packed ? starts[index] : 0) + head) * shape.head_dim;
    D* const base = reinterpret_cast<D*>(operands[packed ? 0 : index]);
    return {base + sequence * shape.sequence_length * stride + column, stride};
  }
  // Of o and do.
  template <typename D, typename Byte>
  HeadRows<D> output(Byte* operand, std::int64_t sequence, std::int64_t head) const {
    const std::int64_t stride = shape.heads * shape.head_dim;
    return {reinterpret_cast<D*>(operand) + sequence * shape.sequence_length * stride + head * shape.head_dim, stride};
  }
  // Of lse.
  template <typename Float, typename Byte>
  HeadRows<Float> scalar(Byte* operand, std::int64_t sequence, std::int64_t head) const {
    return {reinterpret_cast<Float*>(operand) + sequence * shape.sequence_length * shape.heads + head, shape.heads};
  }

  AttentionShape shape;
  bool packed = false;
  float scale = 1;
  float factor = 1;  // of scores, so that they are exponents of 2
  std::int64_t sequences = 0;
  std::int64_t block = 0;
  std::int64_t blocks = 0;
  std::int64_t block_elements = 0;  // of one block of q, k, v or o
};

// What products read: the dtype of the values, or f32 where the processor has no bf16 products.
template <typename D, typename T>
void copy_block(const Grid& grid, const HeadRows<const D>& from, std::int64_t index, T* to) {
  const std::int64_t d = grid.shape.head_dim;
  const std::int64_t rows = grid.rows_of(index);
  for (std::int64_t r = 0; r < rows; ++r) {
    const D* const row = from.row(index * grid.block + r);
    if constexpr (std::is_same_v<D, T>) {
      std::memcpy(to + r * d, row, static_cast<std::size_t>(d) * sizeof(T));
    } else {
      pack_kernels().widen(row, d, to + r * d);
    }
  }
  std::fill(to + rows * d, to + grid.block_elements, T{});
}

template <typename D>
void write_block(const Grid& grid, const float* from, std::int64_t index, const HeadRows<D>& to) {
  const std::int64_t d = grid.shape.head_dim;
  const auto scaled = row_kernels<D>().scaled;
  for (std::int64_t r = 0; r < grid.rows_of(index); ++r) {
    scaled(from + r * d, 1.0F, d, to.row(index * grid.block + r));
  }
}

// A product of blocks whose right factor is packed ahead, since it serves several: by register tiles where they serve,
// otherwise by the library, for which to pack is to copy.
class BlockProduct {
 public:
  BlockProduct(const MatmulShape& shape, ScratchLayout& layout)
      : accumulates_(shape.accumulate), dense_bytes_(shape.n * shape.k * size_of(shape.in)) {
    if (TileMatmul::serves(shape)) {
      tiles_.emplace(shape, layout);
    } else {
      library_.emplace(shape);
      scratch_ = layout.take(library_->scratch_bytes());
    }
  }
  std::int64_t compiled_products() const { return library_ ? 1 : 0; }

  std::int64_t packed_bytes() const { return round_up(tiles_ ? tiles_->packed_b_bytes() : dense_bytes_, 64); }
  bool packs_where_it_lies() const { return tiles_.has_value(); }
  // `b` has rows `stride` elements apart: only where it packs_where_it_lies.
  void pack(const void* b, std::int64_t stride, std::byte* to) const {
    if (tiles_) {
      tiles_->pack_b(b, stride, reinterpret_cast<std::uint32_t*>(to));
    } else {
      std::memcpy(to, b, static_cast<std::size_t>(dense_bytes_));
    }
  }

  void run(const void* a, const std::byte* packed_b, float* c, Triangle triangle, std::span<std::byte> scratch) const {
    if (tiles_) {
      const auto* const b = reinterpret_cast<const std::uint32_t*>(packed_b);
      for (std::int64_t task = 0; task < tiles_->tasks(); ++task) {
        SPILLWAY_CHECK(tiles_->part(task).row == 0, "a block is cut in parts of rows");
        tiles_->run(task, {.a = a, .packed_b = b, .sum = accumulates_ ? c : nullptr, .c = c, .triangle = triangle},
                    scratch);
      }
    } else {
      library_->run({.a = a, .b = packed_b, .bias = nullptr, .c = c, .scratch = scratch_part(scratch, scratch_)});
    }
  }

 private:
  bool accumulates_;
  std::int64_t dense_bytes_;
  std::optional<TileMatmul> tiles_;
  std::optional<Matmul> library_;
  std::int64_t scratch_ = 0;
};

// The two products that serve every block, and their right factors.
template <typename D, typename T>
class BlockProducts {
 public:
  BlockProducts(const Grid& grid, ScratchLayout& layout)
      : grid_(grid),
        inner_({.m = grid.block, .n = grid.block, .k = grid.shape.head_dim, .in = dtype, .transposed_b = true}, layout),
        outer_({.m = grid.block, .n = grid.shape.head_dim, .k = grid.block, .in = dtype, .accumulate = true}, layout),
        copy_(layout.take(grid.block_elements * static_cast<std::int64_t>(sizeof(T)))) {}
  std::int64_t compiled_products() const { return inner_.compiled_products() + outer_.compiled_products(); }

  // Of one block, packed for `inner` and for `outer`.
  std::int64_t inner_bytes() const { return inner_.packed_bytes(); }
  std::int64_t outer_bytes() const { return outer_.packed_bytes(); }
  void pack(const HeadRows<const D>& from, std::int64_t index, std::byte* for_inner, std::byte* for_outer,
            std::span<std::byte> scratch) const {
    const void* b = from.row(index * grid_.block);
    std::int64_t stride = from.stride;
    const bool as_they_are = std::is_same_v<D, T> && inner_.packs_where_it_lies() && outer_.packs_where_it_lies() &&
                             stride % 2 == 0 && grid_.rows_of(index) == grid_.block;
    if (!as_they_are) {
      T* const copy = scratch_part<T>(scratch, copy_);
      copy_block(grid_, from, index, copy);
      b = copy;
      stride = grid_.shape.head_dim;
    }
    if (for_inner != nullptr) inner_.pack(b, stride, for_inner);
    if (for_outer != nullptr) outer_.pack(b, stride, for_outer);
  }

  // c [block, block] = a·bᵀ, with a and b [block, d].
  void inner(const T* a, const std::byte* b, float* c, Triangle triangle, std::span<std::byte> scratch) const {
    inner_.run(a, b, c, triangle, scratch);
  }
  // c [block, d] += a·b, with a [block, block] and b [block, d].
  void outer(const T* a, const std::byte* b, float* c, Triangle triangle, std::span<std::byte> scratch) const {
    outer_.run(a, b, c, triangle, scratch);
  }

 private:
  static constexpr DType dtype = std::is_same_v<T, float> ? DType::f32 : DType::bf16;

  const Grid& grid_;
  BlockProduct inner_;
  BlockProduct outer_;
  std::int64_t copy_;
};

template <template <typename, typename> typename K>
std::unique_ptr<Kernel> make_for_dtype(const KernelKey& key) {
  if (key.reads[0].dtype == DType::f32) return std::make_unique<K<float, float>>(key);
  if (matmul_has_bf16()) return std::make_unique<K<bf16_t, bf16_t>>(key);
  return std::make_unique<K<bf16_t, float>>(key);
}

}  // namespace spillway::attention_blocks
