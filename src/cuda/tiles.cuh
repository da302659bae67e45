// Small matrix products between tiles in shared memory, by all threads of a block, for attention: C = A·B or C += A·B
// with C in fp32. In bf16 by the matrix units (a warp makes 16 x 16 elements at a time), in f32 by fused multiply-adds
// in the order of k. Sides are multiples of 16 in bf16, of 8 in f32; rows of a tile are `ld` elements apart, a multiple
// of 8, and tiles begin at 128-byte boundaries (attention_tiles.h).
#pragma once

#include <mma.h>

#include <cstdint>
#include <type_traits>

#include "cuda/attention_tiles.h"
#include "cuda/math.cuh"

namespace spillway::cuda {

constexpr int attention_threads = 128;

template <typename T>
struct Tile {
  T* first;
  int ld;
};

// What B is of the tile that is given.
enum class Side : std::uint8_t { plain, transposed };

template <typename T, Side a_side, Side b_side>
struct TileProduct;

template <Side a_side, Side b_side>
struct TileProduct<float, a_side, b_side> {
  static __device__ void run(Tile<const float> a, Tile<const float> b, Tile<float> c, int m, int n, int k, bool adds) {
    for (int e = static_cast<int>(threadIdx.x); e < m * n; e += attention_threads) {
      const int row = e / n;
      const int col = e % n;
      float sum = adds ? c.first[row * c.ld + col] : 0.0F;
      for (int i = 0; i < k; ++i) {
        const float left = a.first[a_side == Side::plain ? row * a.ld + i : i * a.ld + row];
        const float right = b.first[b_side == Side::plain ? i * b.ld + col : col * b.ld + i];
        sum = fmaf(left, right, sum);
      }
      c.first[row * c.ld + col] = sum;
    }
  }
};

template <Side a_side, Side b_side>
struct TileProduct<bf16_bits, a_side, b_side> {
  template <Side side>
  using Layout = std::conditional_t<side == Side::plain, nvcuda::wmma::row_major, nvcuda::wmma::col_major>;

  static __device__ void run(Tile<const bf16_bits> a, Tile<const bf16_bits> b, Tile<float> c, int m, int n, int k,
                             bool adds) {
    using namespace nvcuda::wmma;
    const auto* const a_first = reinterpret_cast<const __nv_bfloat16*>(a.first);
    const auto* const b_first = reinterpret_cast<const __nv_bfloat16*>(b.first);
    const int across = n / 16;
    for (int part = static_cast<int>(threadIdx.x) / 32; part < m / 16 * across; part += attention_threads / 32) {
      const int row = part / across * 16;
      const int col = part % across * 16;
      float* const to = c.first + row * c.ld + col;
      fragment<accumulator, 16, 16, 16, float> sum;
      if (adds) {
        load_matrix_sync(sum, to, static_cast<unsigned>(c.ld), mem_row_major);
      } else {
        fill_fragment(sum, 0.0F);
      }
      for (int i = 0; i < k; i += 16) {
        fragment<matrix_a, 16, 16, 16, __nv_bfloat16, Layout<a_side>> left;
        fragment<matrix_b, 16, 16, 16, __nv_bfloat16, Layout<b_side>> right;
        load_matrix_sync(left, a_first + (a_side == Side::plain ? row * a.ld + i : i * a.ld + row),
                         static_cast<unsigned>(a.ld));
        load_matrix_sync(right, b_first + (b_side == Side::plain ? i * b.ld + col : col * b.ld + i),
                         static_cast<unsigned>(b.ld));
        mma_sync(sum, left, right, sum);
      }
      store_matrix_sync(to, sum, static_cast<unsigned>(c.ld), mem_row_major);
    }
  }
};

// Copies `rows` rows of `width` elements of a head, from row `begin` on, into a tile of `rows` x `padded`; what lies
// beyond row `end` or column `width` is zero.
template <typename T>
__device__ void load_tile(const T* first, std::int64_t stride, std::int64_t begin, std::int64_t end, int rows,
                          int width, int padded, Tile<T> to) {
  constexpr int pack = Pack<T>::size;
  if (width % pack == 0 && stride % pack == 0) {  // and heads begin at multiples of their width
    const int packs = padded / pack;
    for (int e = static_cast<int>(threadIdx.x); e < rows * packs; e += attention_threads) {
      const int row = e / packs;
      const int col = e % packs * pack;
      Pack<T> held{};
      if (begin + row < end && col < width) {
        held = *reinterpret_cast<const Pack<T>*>(first + (begin + row) * stride + col);
      }
      *reinterpret_cast<Pack<T>*>(to.first + row * to.ld + col) = held;
    }
    return;
  }
  for (int e = static_cast<int>(threadIdx.x); e < rows * padded; e += attention_threads) {
    const int row = e / padded;
    const int col = e % padded;
    const bool held = begin + row < end && col < width;
    to.first[row * to.ld + col] = held ? first[(begin + row) * stride + col] : T{};
  }
}

// Rows of an fp32 tile as a head's rows, rounded.
template <typename T>
__device__ void store_tile(Tile<const float> from, std::int64_t begin, std::int64_t end, int rows, int width, T* first,
                           std::int64_t stride) {
  for (int e = static_cast<int>(threadIdx.x); e < rows * width; e += attention_threads) {
    const int row = e / width;
    const int col = e % width;
    if (begin + row < end) first[(begin + row) * stride + col] = narrow<T>(from.first[row * from.ld + col]);
  }
}

// The tile that begins so many bytes into a block's shared memory.
template <typename T>
__device__ Tile<T> tile_at(unsigned char* shared, int begin, int stride) {
  return {reinterpret_cast<T*>(shared + begin), stride};
}

template <typename T>
__device__ Tile<const T> read_only(Tile<T> tile) {
  return {tile.first, tile.ld};
}

template <typename T>
inline constexpr Float float_held = std::is_same_v<T, float> ? Float::f32 : Float::bf16;

}  // namespace spillway::cuda
