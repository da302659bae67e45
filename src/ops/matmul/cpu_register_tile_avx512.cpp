#include <immintrin.h>

#include <array>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "ops/matmul/register_tile.h"

namespace spillway {
namespace {

// Of pairs alone are the instructions of AVX512_BF16.
#define SPILLWAY_TILE_TARGET gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")

constexpr int lane_count = 16;

// How 16 columns of one row take a step of k, and how they are rounded to bf16.
struct F32Product {
  [[SPILLWAY_TILE_TARGET, gnu::always_inline]] static __m512 add(__m512 sum, __m512i a, __m512i b) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum);
  }
  // That of round_bf16.
  [[SPILLWAY_TILE_TARGET, gnu::always_inline]] static __m256i narrow(__m512 value) {
    const auto u = reinterpret_cast<__v16su>(value);
    const __v16su rounded = u + 0x7fffU + (u >> 16 & 1U);
    const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    const __m512i upper =
        _mm512_mask_blend_epi32(nan, reinterpret_cast<__m512i>(rounded), reinterpret_cast<__m512i>(u | 0x400000U));
    // g++ 12 thinks _mm512_cvtepi32_epi16 uninitialised.
    return reinterpret_cast<__m256i>(__builtin_convertvector(reinterpret_cast<__v16su>(upper) >> 16, __v16hu));
  }
};

struct PairProduct {
  [[SPILLWAY_TILE_TARGET, gnu::always_inline]] static __m512 add(__m512 sum, __m512i a, __m512i b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  [[SPILLWAY_TILE_TARGET, gnu::always_inline]] static __m256i narrow(__m512 value) {
    return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(value));
  }
};

template <typename Product, typename Out>
[[SPILLWAY_TILE_TARGET, gnu::always_inline]] inline void store_columns(Out* to, __mmask16 columns, __m512 value) {
  if constexpr (std::is_same_v<Out, float>) {
    _mm512_mask_storeu_ps(to, columns, value);
  } else {
    _mm256_mask_storeu_epi16(to, columns, Product::narrow(value));
  }
}

template <typename Product, typename Out, int rows, int vectors>
[[SPILLWAY_TILE_TARGET]] void run_tile(const RegisterTile& tile) {
  __m512 sums[rows][vectors];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) {
      sums[r][v] = tile.start == nullptr ? _mm512_setzero_ps()
                                         : _mm512_loadu_ps(tile.start + r * tile.start_stride + v * lane_count);
    }
  }
  if (tile.sum != nullptr) {  // wanted at the end, and far away
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) _mm_prefetch(tile.sum + r * tile.c_stride + v * lane_count, _MM_HINT_T0);
    }
  }
  const std::uint32_t* a = tile.a;
  const std::uint32_t* b = tile.b;
  const std::int64_t stride = tile.a_stride;
  for (std::int64_t step = 0; step < tile.steps; ++step) {
    __m512i columns[vectors];
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) columns[v] = _mm512_loadu_si512(b + v * lane_count);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const __m512i element = _mm512_set1_epi32(static_cast<int>(a[r * stride + step]));
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) sums[r][v] = Product::add(sums[r][v], element, columns[v]);
    }
    b += vectors * lane_count;
  }
  auto* const c = static_cast<Out*>(tile.c);
#pragma GCC unroll 16
  for (int v = 0; v < vectors; ++v) {
    const std::int64_t first = v * lane_count;
    const std::int64_t left = tile.columns - first;
    if (left <= 0) break;
    const auto exist = static_cast<__mmask16>(left >= lane_count ? 0xffff : (1 << left) - 1);
    const __m512 bias = tile.bias == nullptr ? _mm512_setzero_ps() : _mm512_loadu_ps(tile.bias + first);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const std::int64_t at = r * tile.c_stride + first;
      __m512 value = sums[r][v];
      if (tile.bias != nullptr) value = _mm512_add_ps(value, bias);
      if (tile.sum != nullptr) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(exist, tile.sum + at));
      store_columns<Product>(c + at, exist, value);
    }
  }
}

template <typename Product, typename Out, int vectors, int... row>
constexpr std::array<RegisterTileKernel, sizeof...(row)> kernels_by_rows(std::integer_sequence<int, row...>) {
  return {&run_tile<Product, Out, row + 1, vectors>...};
}

template <typename Product, typename Out>
RegisterTileKernel kernel_for(std::int64_t panel_columns, std::int64_t rows) {
  static constexpr auto narrow = kernels_by_rows<Product, Out, 3>(std::make_integer_sequence<int, 8>());
  static constexpr auto wide = kernels_by_rows<Product, Out, 4>(std::make_integer_sequence<int, 6>());
  const auto index = static_cast<std::size_t>(rows - 1);
  return panel_columns == 48 ? narrow.at(index) : wide.at(index);
}

template <typename Product>
RegisterTileKernel kernel_of(DType out, std::int64_t panel_columns, std::int64_t rows) {
  return out == DType::f32 ? kernel_for<Product, float>(panel_columns, rows)
                           : kernel_for<Product, bf16_t>(panel_columns, rows);
}

}  // namespace

RegisterTileKernel register_tile_kernel_avx512(DType unit, DType out, std::int64_t panel_columns, std::int64_t rows) {
  SPILLWAY_CHECK(panel_columns == 48 || panel_columns == 64, "{} columns", panel_columns);
  return unit == DType::f32 ? kernel_of<F32Product>(out, panel_columns, rows)
                            : kernel_of<PairProduct>(out, panel_columns, rows);
}

}  // namespace spillway
