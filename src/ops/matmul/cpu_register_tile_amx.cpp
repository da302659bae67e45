#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "ops/matmul/register_tile.h"

namespace spillway {
namespace {

#define SPILLWAY_TILE_TARGET gnu::target("prfchw,amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512bf16")

// A tile of C is two by two of the processor's: sums in 0 to 3, rows of A in 4 and 5, columns of B in 6 and 7.
constexpr int tile_side = 16;  // rows of a register, and 32-bit units of a row
constexpr int side = 2 * tile_side;
constexpr std::int64_t row_bytes = tile_side * std::int64_t{sizeof(float)};

// The intrinsics do not tell the compiler that they read memory.
[[gnu::always_inline]] inline void finish_writes() { asm volatile("" : : : "memory"); }

// One step of sixteen units: rows of A are a_stride bytes apart. B passes by; A is to stay in the first-level cache.
[[SPILLWAY_TILE_TARGET, gnu::always_inline]] inline void add_products(const std::uint32_t* a, std::int64_t a_stride,
                                                                      const std::uint32_t* left,
                                                                      const std::uint32_t* right) {
  _tile_stream_loadd(6, left, row_bytes);
  _tile_stream_loadd(7, right, row_bytes);
  _tile_loadd(4, a, a_stride);
  _tile_loadd(5, reinterpret_cast<const std::byte*>(a) + tile_side * a_stride, a_stride);
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}

// The last `steps` of k, less than sixteen: with zeros behind them.
[[SPILLWAY_TILE_TARGET]] void add_last_products(const RegisterTile& tile, std::int64_t first, std::int64_t steps) {
  alignas(64) std::uint32_t a[side][tile_side] = {};
  alignas(64) std::uint32_t b[2][tile_side][tile_side] = {};
  const auto bytes = static_cast<std::size_t>(steps) * sizeof(std::uint32_t);
  for (int r = 0; r < side; ++r) std::memcpy(a[r], tile.a + r * tile.a_stride + first, bytes);
  for (int p = 0; p < 2; ++p) std::memcpy(b[p], tile.b + p * tile.b_panel + first * tile_side, bytes * tile_side);
  finish_writes();
  add_products(a[0], row_bytes, b[0][0], b[1][0]);
}

[[SPILLWAY_TILE_TARGET, gnu::always_inline]] inline void load_sums(const float* from, std::int64_t stride) {
  const std::int64_t bytes = stride * std::int64_t{sizeof(float)};
  _tile_loadd(0, from, bytes);
  _tile_loadd(1, from + tile_side, bytes);
  _tile_loadd(2, from + tile_side * stride, bytes);
  _tile_loadd(3, from + tile_side * stride + tile_side, bytes);
}

[[SPILLWAY_TILE_TARGET, gnu::always_inline]] inline void store_sums(float* to, std::int64_t stride) {
  const std::int64_t bytes = stride * std::int64_t{sizeof(float)};
  _tile_stored(0, to, bytes);
  _tile_stored(1, to + tile_side, bytes);
  _tile_stored(2, to + tile_side * stride, bytes);
  _tile_stored(3, to + tile_side * stride + tile_side, bytes);
}

template <typename Out>
[[SPILLWAY_TILE_TARGET, gnu::always_inline]] inline void store_columns(Out* to, __mmask16 columns, __m512 value) {
  if constexpr (std::is_same_v<Out, float>) {
    _mm512_mask_storeu_ps(to, columns, value);
  } else {
    _mm256_mask_storeu_epi16(to, columns, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(value)));
  }
}

// What is left to do with sums: bias, sum, rounding, and the rows and columns that exist.
template <typename Out, bool adds>
[[SPILLWAY_TILE_TARGET]] void finish_tile(const RegisterTile& tile, const float (&sums)[side][side]) {
  const std::int64_t rows = tile.rows;
  const std::int64_t stride = tile.c_stride;
  for (std::int64_t first = 0; first < tile.columns; first += tile_side) {
    const std::int64_t left = tile.columns - first;
    const auto exist = static_cast<__mmask16>(left >= tile_side ? 0xffff : (1 << left) - 1);
    const __m512 bias = tile.bias == nullptr ? _mm512_setzero_ps() : _mm512_loadu_ps(tile.bias + first);
    const bool biased = tile.bias != nullptr;
    Out* const c = static_cast<Out*>(tile.c) + first;
    const float* const sum = adds ? tile.sum + first : nullptr;
#pragma GCC unroll 4
    for (std::int64_t r = 0; r < rows; ++r) {
      __m512 value = _mm512_load_ps(&sums[r][first]);
      if (biased) value = _mm512_add_ps(value, bias);
      if constexpr (adds) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(exist, sum + r * stride));
      store_columns(c + r * stride, exist, value);
    }
  }
}

// The rows that the tile ends in, which may be far away: two while each step's products are added up.
[[SPILLWAY_TILE_TARGET, gnu::always_inline]] inline void ask_for_rows(const RegisterTile& tile, std::int64_t step) {
  const std::int64_t end = std::min(tile.rows, 2 * step + 2);
  for (std::int64_t r = 2 * step; r < end; ++r) {
    const float* const row = static_cast<const float*>(tile.c) + r * tile.c_stride;
    __builtin_prefetch(row, 1);
    __builtin_prefetch(row + tile_side, 1);
  }
}

template <typename Out>
[[SPILLWAY_TILE_TARGET]] void run_tile(const RegisterTile& tile) {
  finish_writes();
  if (tile.start == nullptr) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    load_sums(tile.start, tile.start_stride);
  }
  const std::int64_t a_stride = tile.a_stride * std::int64_t{sizeof(std::uint32_t)};
  const std::int64_t whole = tile.steps / tile_side * tile_side;
  for (std::int64_t step = 0; step < whole; step += tile_side) {
    const std::uint32_t* const left = tile.b + step * tile_side;
    if constexpr (std::is_same_v<Out, float>) ask_for_rows(tile, step / tile_side);
    add_products(tile.a + step, a_stride, left, left + tile.b_panel);
  }
  if (whole < tile.steps) add_last_products(tile, whole, tile.steps - whole);
  if (std::is_same_v<Out, float> && tile.rows == side && tile.columns == side && tile.bias == nullptr &&
      tile.sum == nullptr) {
    store_sums(static_cast<float*>(tile.c), tile.c_stride);
    return;
  }
  alignas(64) float sums[side][side];
  store_sums(sums[0], side);
  if (tile.sum == nullptr) {
    finish_tile<Out, false>(tile, sums);
  } else {
    finish_tile<Out, true>(tile, sums);
  }
}

struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

[[SPILLWAY_TILE_TARGET]] void configure_tiles() {
  TileConfiguration all;
  std::fill_n(all.row_bytes, 8, static_cast<std::uint16_t>(row_bytes));
  std::fill_n(all.rows, 8, static_cast<std::uint8_t>(tile_side));
  finish_writes();
  _tile_loadconfig(&all);
}

[[SPILLWAY_TILE_TARGET]] void release_tiles() { _tile_release(); }

}  // namespace

AmxTiles::AmxTiles() { configure_tiles(); }
AmxTiles::~AmxTiles() { release_tiles(); }

RegisterTileKernel register_tile_kernel_amx(DType out) {
  return out == DType::f32 ? &run_tile<float> : &run_tile<bf16_t>;
}

}  // namespace spillway
