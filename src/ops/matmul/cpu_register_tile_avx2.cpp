#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "ops/matmul/register_tile.h"

namespace spillway {
namespace {

#define SPILLWAY_TILE_TARGET gnu::target("avx2,fma")

constexpr int lane_count = 8;
constexpr int vectors = 2;  // of a row: twelve sums, two of B and one of A are 15 of the 16 registers

constexpr std::int64_t prefetch_floats = 128;  // of B: eight steps ahead

// That of round_bf16.
[[SPILLWAY_TILE_TARGET, gnu::always_inline]] inline __m128i narrow(__m256 value) {
  const auto u = reinterpret_cast<__v8su>(value);
  const __v8su rounded = u + 0x7fffU + (u >> 16 & 1U);
  const __m256 nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
  const __m256 upper =
      _mm256_blendv_ps(reinterpret_cast<__m256>(rounded), reinterpret_cast<__m256>(u | 0x400000U), nan);
  const __m256i high = _mm256_srli_epi32(_mm256_castps_si256(upper), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}

template <typename Out>
[[SPILLWAY_TILE_TARGET, gnu::always_inline]] inline void store_lanes(Out* to, __m256 value) {
  if constexpr (std::is_same_v<Out, float>) {
    _mm256_storeu_ps(to, value);
  } else {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), narrow(value));
  }
}

// Bias and sum are added to these columns of a row, and all are written.
template <typename Out>
[[SPILLWAY_TILE_TARGET, gnu::always_inline]] inline void finish(const RegisterTile& tile, int row, int first,
                                                                __m256 value) {
  const std::int64_t at = row * tile.c_stride + first;
  if (tile.bias != nullptr) value = _mm256_add_ps(value, _mm256_loadu_ps(tile.bias + first));
  if (tile.sum != nullptr) value = _mm256_add_ps(value, _mm256_loadu_ps(tile.sum + at));
  store_lanes(static_cast<Out*>(tile.c) + at, value);
}

// The same where some of the columns may not exist.
template <typename Out>
[[SPILLWAY_TILE_TARGET, gnu::noinline]] void finish_part(const RegisterTile& tile, int row, int first, __m256 value) {
  const std::int64_t exist = std::min<std::int64_t>(tile.columns - first, lane_count);
  if (exist <= 0) return;
  const std::int64_t at = row * tile.c_stride + first;
  float sum[lane_count] = {};
  Out out[lane_count];
  RegisterTile part;
  part.c = out;
  if (tile.bias != nullptr) part.bias = tile.bias + first;
  if (tile.sum != nullptr) {
    std::memcpy(sum, tile.sum + at, static_cast<std::size_t>(exist) * sizeof(float));
    part.sum = sum;
  }
  finish<Out>(part, 0, 0, value);
  std::memcpy(static_cast<Out*>(tile.c) + at, out, static_cast<std::size_t>(exist) * sizeof(Out));
}

template <typename Out, int rows>
[[SPILLWAY_TILE_TARGET]] void run_tile(const RegisterTile& tile) {
  __m256 sums[rows][vectors];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) {
      sums[r][v] = tile.start == nullptr ? _mm256_setzero_ps()
                                         : _mm256_loadu_ps(tile.start + r * tile.start_stride + v * lane_count);
    }
  }
  if (tile.sum != nullptr) {  // wanted at the end, and far away
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) _mm_prefetch(tile.sum + r * tile.c_stride, _MM_HINT_T0);
  }
  const auto* a = reinterpret_cast<const float*>(tile.a);
  const auto* b = reinterpret_cast<const float*>(tile.b);
  const std::int64_t stride = tile.a_stride;
  const std::int64_t steps = tile.steps;
#pragma GCC unroll 4
  for (std::int64_t step = 0; step < steps; ++step) {
    _mm_prefetch(b + prefetch_floats, _MM_HINT_T0);
    __m256 columns[vectors];
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) columns[v] = _mm256_loadu_ps(b + v * lane_count);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const __m256 element = _mm256_broadcast_ss(a + r * stride + step);
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) sums[r][v] = _mm256_fmadd_ps(element, columns[v], sums[r][v]);
    }
    b += vectors * lane_count;
  }
  const bool whole = tile.columns == vectors * lane_count;
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) {
      if (whole) {
        finish<Out>(tile, r, v * lane_count, sums[r][v]);
      } else {
        finish_part<Out>(tile, r, v * lane_count, sums[r][v]);
      }
    }
  }
}

template <typename Out, int... row>
constexpr std::array<RegisterTileKernel, sizeof...(row)> kernels_by_rows(std::integer_sequence<int, row...>) {
  return {&run_tile<Out, row + 1>...};
}

}  // namespace

RegisterTileKernel register_tile_kernel_avx2(DType out, std::int64_t rows) {
  static constexpr auto to_f32 = kernels_by_rows<float>(std::make_integer_sequence<int, 6>());
  static constexpr auto to_bf16 = kernels_by_rows<bf16_t>(std::make_integer_sequence<int, 6>());
  return (out == DType::f32 ? to_f32 : to_bf16).at(static_cast<std::size_t>(rows - 1));
}

}  // namespace spillway
