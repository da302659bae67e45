#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "ops/matmul/register_tile.h"

namespace spillway {
namespace {

#define SPILLWAY_TILE_TARGET gnu::target("prfchw,amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512bf16")

// A tile of C is two by two of the processor's: sums in 0 to 3, sixteen rows of A in 4, sixteen columns of B in 5.
constexpr int tile_side = 16;  // rows of a register, and 32-bit units of a row
constexpr int side = 2 * tile_side;
constexpr std::int64_t row_bytes = tile_side * std::int64_t{sizeof(float)};

// The intrinsics do not tell the compiler that they read memory.
[[gnu::always_inline]] inline void finish_writes() { asm volatile("" : : : "memory"); }

// One step of sixteen units: rows of A are a_stride bytes apart. B passes by; A is to stay in the first-level cache.
// With a register more no load is made twice, and beside another thread on the core all wait for each other
// (docs/techniques/register-tiles.md).
[[SPILLWAY_TILE_TARGET, gnu::always_inline]] inline void add_products(const std::uint32_t* a, std::int64_t a_stride,
                                                                      const std::uint32_t* left,
                                                                      const std::uint32_t* right) {
  const auto* const low = reinterpret_cast<const std::byte*>(a) + tile_side * a_stride;
  _tile_stream_loadd(5, left, row_bytes);
  _tile_loadd(4, a, a_stride);
  _tile_dpbf16ps(0, 4, 5);
  _tile_loadd(4, low, a_stride);
  _tile_dpbf16ps(2, 4, 5);
  _tile_stream_loadd(5, right, row_bytes);
  _tile_dpbf16ps(3, 4, 5);
  _tile_loadd(4, a, a_stride);
  _tile_dpbf16ps(1, 4, 5);
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

using Unfinished = AmxTiles::Unfinished;
using Sums = const float (&)[side][side];

// Bias, sum, rounding, and the rows up to `end` and columns that exist.
template <typename Out, bool adds>
[[SPILLWAY_TILE_TARGET, gnu::always_inline]] inline void finish_rows(Unfinished& tile, Sums sums, std::int64_t end) {
  end = std::min(end, tile.rows);
  const std::uint32_t exist = tile.columns == side ? ~0U : (1U << tile.columns) - 1;
  const auto low_exist = static_cast<__mmask16>(exist);
  const auto high_exist = static_cast<__mmask16>(exist >> tile_side);
  Out* c = static_cast<Out*>(tile.c) + tile.row * tile.c_stride;
  const float* sum = adds ? tile.sum + tile.row * tile.c_stride : nullptr;
  for (; tile.row < end; ++tile.row, c += tile.c_stride) {
    __m512 low = _mm512_load_ps(sums[tile.row]);
    __m512 high = _mm512_load_ps(sums[tile.row] + tile_side);
    if (tile.bias != nullptr) {
      low = _mm512_add_ps(low, _mm512_loadu_ps(tile.bias));
      high = _mm512_add_ps(high, _mm512_loadu_ps(tile.bias + tile_side));
    }
    if constexpr (adds) {
      low = _mm512_add_ps(low, _mm512_maskz_loadu_ps(low_exist, sum));
      high = _mm512_add_ps(high, _mm512_maskz_loadu_ps(high_exist, sum + tile_side));
      sum += tile.c_stride;
    }
    if constexpr (std::is_same_v<Out, float>) {
      if (tile.streams) {
        _mm512_stream_ps(c, low);
        _mm512_stream_ps(c + tile_side, high);
      } else {
        _mm512_mask_storeu_ps(c, low_exist, low);
        _mm512_mask_storeu_ps(c + tile_side, high_exist, high);
      }
    } else {
      const auto rounded = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
      if (tile.streams) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(c), rounded);
      } else {
        _mm512_mask_storeu_epi16(c, exist, rounded);
      }
    }
  }
}

// The tiles of 32 rows, one after the other. What is left to do with a tile's sums is spread over the steps of the next
// one, whose products go on meanwhile, and so are the requests for the rows of A that come next.
template <typename Out, bool adds>
[[SPILLWAY_TILE_TARGET]] void multiply_tiles(const RegisterTile& tiles, bool passes_by, Unfinished& unfinished,
                                             float (&sums)[side][side]) {
  Unfinished last = unfinished;
  finish_writes();
  const std::int64_t stride = tiles.a_stride;
  const std::int64_t whole = tiles.steps / tile_side * tile_side;
  const auto groups = static_cast<std::uint32_t>(whole / tile_side);  // a division of 32 bits is a fast one
  const std::int64_t rows_a_step = groups == 0 ? 0 : (side + groups - 1) / groups;
  constexpr std::int64_t line_bytes = 64;
  const bool lines = reinterpret_cast<std::uintptr_t>(tiles.c) % line_bytes == 0 &&
                     tiles.c_stride * std::int64_t{sizeof(Out)} % line_bytes == 0;
  const bool at_once =
      std::is_same_v<Out, float> && !adds && !(passes_by && lines) && tiles.bias == nullptr && tiles.rows == side;
  RegisterTile tile = tiles;
  const std::uint32_t* ahead = tiles.a + side * stride;
  const std::int64_t rows_ahead = tiles.more_rows ? (side * side + tiles.columns - 1) / tiles.columns : 0;
  for (std::int64_t column = 0; column < tiles.columns; column += side) {
    if (tile.start == nullptr) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    } else {
      load_sums(tile.start + column, tile.start_stride);
    }
    std::int64_t finished = 0;
    for (std::int64_t step = 0; step < whole; step += tile_side) {
      const std::uint32_t* const left = tile.b + step * tile_side;
      for (std::int64_t r = 0; r < rows_ahead; ++r) __builtin_prefetch(ahead + r * stride + step, 0, 2);
      finish_rows<Out, adds>(last, sums, finished += rows_a_step);
      add_products(tile.a + step, stride * std::int64_t{sizeof(std::uint32_t)}, left, left + tile.b_panel);
    }
    if (whole < tile.steps) add_last_products(tile, whole, tile.steps - whole);
    finish_rows<Out, adds>(last, sums, side);
    if (tiles.waits || (at_once && column + side <= tiles.columns)) {
      store_sums(static_cast<float*>(tile.c) + column, tile.c_stride);
    } else {
      store_sums(sums[0], side);
      last = {.bias = tile.bias == nullptr ? nullptr : tile.bias + column,
              .sum = adds ? tile.sum + column : nullptr,
              .c = static_cast<Out*>(tile.c) + column,
              .c_stride = tile.c_stride,
              .rows = tile.rows,
              .columns = std::min<std::int64_t>(side, tiles.columns - column),
              .streams = passes_by && lines && column + side <= tiles.columns};
    }
    finish_writes();
    tile.b += 2 * tile.b_panel;
    ahead += rows_ahead * stride;
  }
  unfinished = last;
}

template <typename Out, bool adds>
[[SPILLWAY_TILE_TARGET]] void finish_tile(Unfinished& unfinished, Sums sums) {
  finish_rows<Out, adds>(unfinished, sums, side);
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

AmxTiles::AmxTiles(const Product& product) : product_(product) { configure_tiles(); }
AmxTiles::~AmxTiles() { release_tiles(); }

void AmxTiles::multiply(const RegisterTile& tiles) {
  const auto [out, adds, passes_by] = product_;
  if (out == DType::f32) {
    adds ? multiply_tiles<float, true>(tiles, passes_by, last_, sums_)
         : multiply_tiles<float, false>(tiles, passes_by, last_, sums_);
  } else {
    adds ? multiply_tiles<bf16_t, true>(tiles, passes_by, last_, sums_)
         : multiply_tiles<bf16_t, false>(tiles, passes_by, last_, sums_);
  }
}

void AmxTiles::finish() {
  const bool adds = product_.adds;
  if (product_.out == DType::f32) {
    adds ? finish_tile<float, true>(last_, sums_) : finish_tile<float, false>(last_, sums_);
  } else {
    adds ? finish_tile<bf16_t, true>(last_, sums_) : finish_tile<bf16_t, false>(last_, sums_);
  }
  // Who reads C next must see what went past the caches.
  if (product_.passes_by) _mm_sfence();
}

}  // namespace spillway
