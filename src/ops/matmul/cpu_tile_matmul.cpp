#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <type_traits>

#include "base/error.h"
#include "ops/matmul/pack.h"
#include "ops/matmul/register_tile.h"
#include "ops/matmul/tile_matmul.h"

namespace spillway {
namespace {

constexpr std::int64_t unit_bytes = 4;
constexpr std::int64_t line_units = 16;  // of the cache

// More rows share one packing of B, fewer make more tasks.
constexpr std::int64_t usual_part_rows = 512;
constexpr std::int64_t fewest_tasks = 8;
constexpr std::int64_t least_part_columns = 192;
constexpr std::int64_t most_part_columns = 1536;
constexpr std::int64_t own_cache_bytes = 2 * mib;  // of a processor with AMX
constexpr std::int64_t near_bytes = 512 * kib;     // of A: more is not in the second-level cache beside B packed

// What registers and caches have room for.
struct Tiling {
  std::int64_t rows;  // of a tile
  std::int64_t columns;
  std::int64_t panel_columns;  // of B packed, one or two panels a tile
  std::int64_t steps;          // that tiles take at once
  // Of a strip of A in the first-level cache: one chunk for all of k, or several.
  std::int64_t whole_chunk_steps;
  std::int64_t most_chunk_steps;
  std::int64_t most_block_steps;  // of B packed; a block of attention is a single one
  std::int64_t block_bytes;       // of B packed, beside that strip in the second-level cache
  std::int64_t most_part_rows;
};

constexpr Tiling amx_tiling = {.rows = 32,
                               .columns = 32,
                               .panel_columns = 16,
                               .steps = 16,
                               .whole_chunk_steps = 384,
                               .most_chunk_steps = 256,
                               .most_block_steps = 768,
                               .block_bytes = 768 * kib,
                               .most_part_rows = 1024};

// Second-level caches have 512 KiB and more with AVX2, but on Intel's before 2019, 1 MiB and more with AVX-512, and
// 2 MiB with AMX.
Tiling tiling_for(std::int64_t columns, Bf16Product how) {
  if (how == Bf16Product::amx) return amx_tiling;
  if (matmul_tile_isa() == Isa::avx2) {
    return {.rows = 6,
            .columns = 16,
            .panel_columns = 16,
            .steps = 1,
            .whole_chunk_steps = 384,
            .most_chunk_steps = 384,
            .most_block_steps = 384,
            .block_bytes = 320 * kib,
            .most_part_rows = usual_part_rows};
  }
  const bool wide = columns % 64 == 0 && columns % 48 != 0;
  return {.rows = wide ? 6 : 8,
          .columns = wide ? 64 : 48,
          .panel_columns = wide ? 64 : 48,
          .steps = 1,
          .whole_chunk_steps = 768,
          .most_chunk_steps = 768,
          .most_block_steps = 768,
          .block_bytes = 640 * kib,
          .most_part_rows = usual_part_rows};
}

RegisterTileKernel kernel_for(DType unit, DType out, std::int64_t panel_columns, std::int64_t rows) {
  if (matmul_tile_isa() == Isa::avx512) return register_tile_kernel_avx512(unit, out, panel_columns, rows);
  SPILLWAY_CHECK(unit == DType::f32 && panel_columns == 16, "{} of {}", panel_columns, name_of(unit));
  return register_tile_kernel_avx2(out, rows);
}

// Packing B is not worth it for a few rows.
constexpr std::int64_t fewest_rows = 16;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// The first byte and the last of these, read, and written back where T is not const.
template <typename T>
void touch(T* from, std::int64_t count) {
  if (count <= 0) return;
  using Byte = std::conditional_t<std::is_const_v<T>, const volatile std::byte, volatile std::byte>;
  auto* const first = reinterpret_cast<Byte*>(from);
  for (Byte* const at : {first, first + count * static_cast<std::int64_t>(sizeof(T)) - 1}) {
    const std::byte value = *at;
    if constexpr (!std::is_const_v<T>) *at = value;
  }
}
#endif

// What a kernel reads whether it exists or not.
struct TileExtent {
  std::int64_t rows, columns, panel_columns;
};

// Register tiles are compiled without sanitizers, for which their loops are too long: those see the ends of all rows
// here.
void show_sanitizers([[maybe_unused]] const RegisterTile& tile, [[maybe_unused]] const TileExtent& read,
                     [[maybe_unused]] DType out) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  for (std::int64_t r = 0; r < read.rows; ++r) {
    touch(tile.a + r * tile.a_stride, tile.steps);
    if (tile.start != nullptr) touch(tile.start + r * tile.start_stride, read.columns);
  }
  for (std::int64_t panel = 0; panel < read.columns / read.panel_columns; ++panel) {
    touch(tile.b + panel * tile.b_panel, tile.steps * read.panel_columns);
  }
  if (tile.bias != nullptr) touch(tile.bias, read.columns);
  const std::int64_t size = size_of(out);
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    if (tile.sum != nullptr) touch(tile.sum + r * tile.c_stride, tile.columns);
    touch(static_cast<std::byte*>(tile.c) + r * tile.c_stride * size, tile.columns * size);
  }
#endif
}

// As few as give tasks enough, and with them as many tasks as a few threads share out evenly.
std::int64_t row_parts(const MatmulShape& shape, const Tiling& tiling) {
  const std::int64_t most = divide_up(shape.m, usual_part_rows);
  std::int64_t parts = std::clamp(divide_up(fewest_tasks, divide_up(shape.n, least_part_columns)),
                                  divide_up(shape.m, tiling.most_part_rows), most);
  while (parts < std::min(most, fewest_tasks) && fewest_tasks % parts != 0) ++parts;
  return parts;
}

// `count` cut in `parts`, rounded up to whole `unit`s.
std::int64_t even_part(std::int64_t count, std::int64_t parts, std::int64_t unit) {
  return round_up(divide_up(count, parts), unit);
}

}  // namespace

bool TileMatmul::serves(const MatmulShape& shape) {
  const bool whole_units = shape.in == DType::f32 || shape.k % 2 == 0;
  const bool types = shape.in == DType::bf16 || (shape.out == DType::f32 && shape.bias == DType::f32);
  return whole_units && types && shape.m >= fewest_rows && matmul_tile_isa() != Isa::baseline;
}

TileMatmul::TileMatmul(const MatmulShape& shape, ScratchLayout& layout, Bf16Product how)
    : shape_(shape),
      how_(shape.in == DType::bf16 ? how : Bf16Product::widened),
      unit_(how_ == Bf16Product::widened ? DType::f32 : DType::bf16),
      steps_(shape.k * size_of(unit_) / unit_bytes) {
  const Tiling tiling = tiling_for(shape.n, how_);
  tile_columns_ = tiling.columns;
  panel_columns_ = tiling.panel_columns;
  tile_rows_ = tiling.rows;
  tile_steps_ = tiling.steps;
  row_parts_ = row_parts(shape, tiling);
  part_rows_ = even_part(shape.m, row_parts_, tile_rows_);
  row_parts_ = divide_up(shape.m, part_rows_);
  const std::int64_t wanted = std::max(divide_up(shape.n, most_part_columns), divide_up(fewest_tasks, row_parts_));
  part_columns_ = even_part(shape.n, std::min(wanted, divide_up(shape.n, least_part_columns)), tile_columns_);
  column_parts_ = divide_up(shape.n, part_columns_);
  block_steps_ = even_part(steps_, divide_up(steps_, tiling.most_block_steps), tiling.steps);
  const bool whole = steps_ <= tiling.whole_chunk_steps;
  chunk_steps_ = even_part(block_steps_, whole ? 1 : divide_up(block_steps_, tiling.most_chunk_steps), tiling.steps);
  const std::int64_t panels = part_columns_ / tile_columns_;
  const std::int64_t fit = std::max<std::int64_t>(1, tiling.block_bytes / (block_steps_ * tile_columns_ * unit_bytes));
  block_columns_ = even_part(panels, divide_up(panels, fit), 1) * tile_columns_;
  packed_ = layout.take(block_columns_ * block_steps_ * unit_bytes);
  bias_ = layout.take(block_columns_ * size_of(DType::f32));
  if (chunk_steps_ < steps_) {
    sums_ = layout.take((block_steps_ < steps_ ? part_rows_ : tile_rows_) * block_columns_ * size_of(DType::f32));
  }
  if (!widens() && !uses_amx()) return;
  own_stride_ = round_up(block_steps_, line_units) + line_units;  // rows a power of two apart would share few sets
  own_rows_ = layout.take(tile_rows_ * own_stride_ * unit_bytes);
}

MatmulPart TileMatmul::part(std::int64_t task) const {
  const std::int64_t row = task / column_parts_ * part_rows_;
  const std::int64_t column = task % column_parts_ * part_columns_;
  return {row, std::min(part_rows_, shape_.m - row), column, std::min(part_columns_, shape_.n - column)};
}

void TileMatmul::run(std::int64_t task, const Operands& operands, std::span<std::byte> scratch) const {
  const bool passes_by = shape_.m * shape_.n * size_of(shape_.out) > own_cache_bytes;
  std::optional<AmxTiles> registers;
  if (uses_amx()) registers.emplace(AmxTiles::Product{shape_.out, shape_.accumulate, passes_by});
  const MatmulPart part = this->part(task);
  for_blocks(part.column, part.columns,
             [&](const Block& block) { run_block(part, block, operands, scratch, registers ? &*registers : nullptr); });
}

std::int64_t TileMatmul::packed_b_bytes() const { return round_up(shape_.n, tile_columns_) * steps_ * unit_bytes; }

void TileMatmul::pack_b(const void* b, std::int64_t b_stride, std::uint32_t* to) const {
  for (std::int64_t part = 0; part < column_parts_; ++part) {
    const auto [row, rows, column, columns] = this->part(part);
    for_blocks(column, columns, [&](const Block& block) { pack_block({b, b_stride}, block, to + place_of(block)); });
  }
}

std::int64_t TileMatmul::place_of(const Block& block) const {
  return block.column * steps_ + block.steps.first * round_up(block.columns, tile_columns_);
}

template <typename Visit>
void TileMatmul::for_blocks(std::int64_t first_column, std::int64_t columns, const Visit& visit) const {
  const std::int64_t end = first_column + columns;
  for (std::int64_t column = first_column; column < end; column += block_columns_) {
    for (std::int64_t step = 0; step < steps_; step += block_steps_) {
      visit(Block{column, std::min(block_columns_, end - column), {step, std::min(block_steps_, steps_ - step)}});
    }
  }
}

void TileMatmul::run_block(const MatmulPart& part, Block block, const Operands& operands, std::span<std::byte> scratch,
                           AmxTiles* registers) const {
  auto* const own = scratch_part<std::uint32_t>(scratch, packed_);
  if (operands.packed_b == nullptr) pack_block({operands.b, b_stride()}, block, own);
  block.packed = operands.packed_b == nullptr ? own : operands.packed_b + place_of(block);
  if (is_last(block) && shape_.has_bias) {
    widen_bias(operands.bias, block.column, block.columns, scratch_part<float>(scratch, bias_));
  }
  for (std::int64_t row = 0; row < part.rows; row += tile_rows_) {
    run_rows(row, part, block, operands, scratch, registers);
  }
  if (uses_amx()) registers->finish();
}

// With AMX all tiles of a chunk are one call.
void TileMatmul::run_rows(std::int64_t row, const MatmulPart& part, const Block& block, const Operands& operands,
                          std::span<std::byte> scratch, AmxTiles* registers) const {
  auto* const bias = scratch_part<float>(scratch, bias_);
  // Of a product in several blocks the sums of all rows wait.
  float* const sums = scratch_part<float>(scratch, sums_) + (block.steps.count < steps_ ? row * block_columns_ : 0);
  const std::int64_t stride_bytes = (operands.a_stride == 0 ? shape_.k : operands.a_stride) * size_of(shape_.in);
  const std::int64_t rows = std::min(tile_rows_, part.rows - row);
  const Extent extent = extent_of(operands.triangle, part.row + row, part.row + row + rows, block.steps);
  const Rows a = rows_of(bytes_at(operands.a, row * stride_bytes), stride_bytes, rows, block.steps, scratch);
  // No division: products of attention have few tiles a row.
  const std::int64_t before = std::max<std::int64_t>(0, extent.first_column - block.column);
  const std::int64_t first = before == 0 ? 0 : before / tile_columns_ * tile_columns_;
  const std::int64_t end = std::min(extent.end_column - block.column, block.columns);
  const std::int64_t width = uses_amx() ? round_up(end - first, amx_tiling.columns) : tile_columns_;
  const std::int64_t end_step = extent.steps.first + extent.steps.count;
  for (std::int64_t step = extent.steps.first; step < end_step; step += chunk_steps_) {
    const bool begins = block.steps.first == 0 && step == extent.steps.first;
    const bool ends = is_last(block) && step + chunk_steps_ >= end_step;
    const DType out = ends ? shape_.out : DType::f32;
    const RegisterTileKernel kernel = uses_amx() ? nullptr : kernel_for(unit_, out, tile_columns_, rows);
    for (std::int64_t at = first; at < end; at += width) {
      RegisterTile tile{.a = a.units + step,
                        .a_stride = a.stride,
                        .b = block.packed + at * block.steps.count + step * panel_columns_,
                        .b_panel = block.steps.count * panel_columns_,
                        .steps = std::min(chunk_steps_, end_step - step),
                        .start = begins ? nullptr : sums + at,
                        .start_stride = block_columns_,
                        .c = sums + at,
                        .c_stride = block_columns_,
                        .rows = uses_amx() ? tile_rows_ : rows,
                        .columns = width,
                        .waits = !ends,
                        .more_rows = row + 2 * tile_rows_ <= part.rows && part.rows * steps_ * unit_bytes > near_bytes};
      if (ends) {
        const std::int64_t place = (part.row + row) * shape_.n + block.column + at;
        if (shape_.has_bias) tile.bias = bias + at;
        if (shape_.accumulate) tile.sum = operands.sum + place;
        tile.c = static_cast<std::byte*>(operands.c) + place * size_of(shape_.out);
        tile.c_stride = shape_.n;
        tile.rows = rows;
        tile.columns = std::min(width, block.columns - at);
      }
      show_sanitizers(tile, {uses_amx() ? tile_rows_ : rows, width, panel_columns_}, out);
      if (uses_amx()) {
        registers->multiply(tile);
      } else {
        kernel(tile);
      }
    }
  }
}

TileMatmul::Extent TileMatmul::extent_of(Triangle triangle, std::int64_t first_row, std::int64_t end_row,
                                         const Steps& steps) const {
  Extent extent{0, shape_.n, {0, steps.count}};
  if (triangle == Triangle::c_up_to_row) extent.end_column = end_row;
  if (triangle == Triangle::c_from_row) extent.first_column = first_row;
  if (triangle != Triangle::a_up_to_row && triangle != Triangle::a_from_row) return extent;
  SPILLWAY_CHECK(steps.count == steps_, "a triangle of A with {} steps", steps_);
  const std::int64_t in_step = unit_bytes / size_of(unit_);
  if (triangle == Triangle::a_up_to_row)
    extent.steps.count = std::min(steps_, round_up(divide_up(end_row, in_step), tile_steps_));
  if (triangle == Triangle::a_from_row) {
    extent.steps.first = std::min(steps_ - 1, first_row / in_step) / tile_steps_ * tile_steps_;
    extent.steps.count = steps_ - extent.steps.first;
  }
  return extent;
}

// Panels of [step][column]; columns that do not exist are zero.
void TileMatmul::pack_block(const Stored& stored, const Block& block, std::uint32_t* to) const {
  const std::int64_t steps = block.steps.count;
  if (const std::int64_t last = block.columns % tile_columns_; last > 0) {
    std::memset(to + (block.columns - last) * steps, 0, static_cast<std::size_t>(tile_columns_ * steps * unit_bytes));
  }
  if (!shape_.transposed_b) {
    pack_rows(stored, block, to);
    return;
  }
  for (std::int64_t at = 0; at < block.columns; at += panel_columns_) {
    pack_columns(stored, block, block.column + at, std::min(panel_columns_, block.columns - at), to + at * steps);
  }
}

void TileMatmul::pack_rows(const Stored& stored, const Block& block, std::uint32_t* to) const {
  const auto [b, stride] = stored;
  const auto [first, steps] = block.steps;
  if (shape_.in == DType::f32) {
    const auto* const from = static_cast<const std::uint32_t*>(b) + first * stride + block.column;
    pack_kernels().unit_rows(from, stride, steps, block.columns, panel_columns_, to);
    return;
  }
  const std::int64_t row = first * (widens() ? 1 : 2);
  const auto* const from = static_cast<const std::uint16_t*>(b) + row * stride + block.column;
  const auto pack = widens() ? pack_kernels().widen_rows : pack_kernels().pair_rows;
  pack(from, stride, steps, block.columns, panel_columns_, to);
}

// A panel of B^T, whose rows are columns.
void TileMatmul::pack_columns(const Stored& stored, const Block& block, std::int64_t column, std::int64_t columns,
                              std::uint32_t* to) const {
  const auto [first, steps] = block.steps;
  const std::int64_t stride = stored.stride * size_of(unit_) / unit_bytes;
  const std::int64_t at = column * stride + first;
  if (widens()) {
    const auto* const from = static_cast<const std::uint16_t*>(stored.b) + at;
    pack_kernels().transpose_widened(from, stride, columns, steps, to, panel_columns_);
  } else {
    const auto* const from = static_cast<const std::uint32_t*>(stored.b) + at;
    pack_kernels().transpose32(from, stride, columns, steps, to, panel_columns_);
  }
}

TileMatmul::Rows TileMatmul::rows_of(const std::byte* a, std::int64_t stride_bytes, std::int64_t rows,
                                     const Steps& steps, std::span<std::byte> scratch) const {
  const bool lacks_rows = uses_amx() && rows < tile_rows_;
  if (!widens() && !lacks_rows) {
    return {reinterpret_cast<const std::uint32_t*>(a) + steps.first, stride_bytes / unit_bytes};
  }
  auto* const own = scratch_part<std::uint32_t>(scratch, own_rows_);
  for (std::int64_t r = 0; r < rows; ++r) {
    std::uint32_t* const to = own + r * own_stride_;
    const std::byte* const row = a + r * stride_bytes;
    if (widens()) {
      pack_kernels().widen(reinterpret_cast<const bf16_t*>(row) + steps.first, steps.count,
                           reinterpret_cast<float*>(to));
    } else {
      std::memcpy(to, row + steps.first * unit_bytes, static_cast<std::size_t>(steps.count * unit_bytes));
    }
  }
  if (lacks_rows) std::fill(own + rows * own_stride_, own + tile_rows_ * own_stride_, 0U);
  return {own, own_stride_};
}

void TileMatmul::widen_bias(const void* bias, std::int64_t column, std::int64_t columns, float* to) const {
  const std::byte* const from = bytes_at(bias, column * size_of(shape_.bias));
  std::memset(to, 0, static_cast<std::size_t>(round_up(columns, tile_columns_)) * sizeof(float));
  if (shape_.bias == DType::bf16) {
    pack_kernels().widen(reinterpret_cast<const bf16_t*>(from), columns, to);
  } else {
    std::memcpy(to, from, static_cast<std::size_t>(columns) * sizeof(float));
  }
}

}  // namespace spillway
