// Backward, in three kernels as in attention_dx.cu: delta; dk and dv, one block 64 keys; dq, one block 64 queries.
#include "cuda/attention_bf16.cuh"
#include "cuda/attention_tiles.h"

namespace spillway::cuda {
namespace {

// Of a tile of what a block goes through: rows of q and do for dk and dv, of k and v for dq.
template <int width>
constexpr int tile_rows_of = width == 64 ? 64 : 32;

template <int width>
constexpr int tiles_bytes = 2 * SharedRows<width>::bytes(fragment_rows) +
                            4 * SharedRows<width>::bytes(tile_rows_of<width>);
template <int width>
constexpr int dk_dv_bytes = tiles_bytes<width> + 4 * tile_rows_of<width> * 4;  // and lse and delta of two tiles
static_assert(dk_dv_bytes<64> <= least_shared_bytes && dk_dv_bytes<128> <= least_shared_bytes);

// The rows of a block in shared memory: two that stay, and two of each of two tiles.
template <int width>
struct Rows {
  std::uint32_t first;

  __device__ SharedRows<width> stays(int which) const {
    return {first + static_cast<std::uint32_t>(which * SharedRows<width>::bytes(fragment_rows))};
  }
  __device__ SharedRows<width> of_tile(std::int64_t tile, int which) const {
    return {first + static_cast<std::uint32_t>(2 * SharedRows<width>::bytes(fragment_rows) +
                                               (static_cast<int>(tile & 1) * 2 + which) *
                                                   SharedRows<width>::bytes(tile_rows_of<width>))};
  }
};

// One number for each row and head; `lanes` threads a number.
template <int lanes>
__global__ void __launch_bounds__(fragment_threads) find_delta(AttentionDx of) {
  const AttentionSizes& sizes = of.sizes;
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * (fragment_threads / lanes) + threadIdx.x / lanes;
  const std::int64_t row = item / sizes.heads;
  const std::int64_t head = item % sizes.heads;
  const int col = static_cast<int>(threadIdx.x) % lanes * 8;
  const bool is_there = row < sizes.sequences * sizes.sequence_length;
  float sum = 0;
  if (is_there && col < sizes.head_dim) {
    const int head_dim = static_cast<int>(sizes.head_dim);
    const auto o = *reinterpret_cast<const Pack<bf16_bits>*>(head_at(of.o, row, head, head_dim) + col);
    const auto d_o = *reinterpret_cast<const Pack<bf16_bits>*>(head_at(of.d_o, row, head, head_dim) + col);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(widen(o.of[i]), widen(d_o.of[i]), sum);
  }
#pragma unroll
  for (int other = lanes / 2; other >= 1; other /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, other);
  if (is_there && col == 0) of.delta[item] = sum;
}

// scores += a·bᵀ, a the 16 rows from `row` on in `left`, or held already, b all rows of `right`.
template <int width, int rows>
__device__ void multiply_by_columns(FragmentC (&scores)[rows / 8], const FragmentA (&a)[width / 16],
                                    SharedRows<width> right, int lane) {
#pragma unroll
  for (int part = 0; part < width / 16; ++part) {
#pragma unroll
    for (int pair = 0; pair < rows / 16; ++pair) {
      std::uint32_t b[4];
      load_b_of_columns(b, right, pair * 16, part * 16, lane);
      multiply_add(scores[2 * pair], a[part], b[0], b[1]);
      multiply_add(scores[2 * pair + 1], a[part], b[2], b[3]);
    }
  }
}

// out += factor·rows, the factor's columns rounded.
template <int width, int rows>
__device__ void multiply_by_rows(FragmentC (&out)[width / 8], const FragmentC (&factor)[rows / 8],
                                 SharedRows<width> right, int lane) {
#pragma unroll
  for (int part = 0; part < rows / 16; ++part) {
    const FragmentA a = rounded(factor[2 * part], factor[2 * part + 1]);
#pragma unroll
    for (int pair = 0; pair < width / 16; ++pair) {
      std::uint32_t b[4];
      load_b_of_rows(b, right, part * 16, pair * 16, lane);
      multiply_add(out[2 * pair], a, b[0], b[1]);
      multiply_add(out[2 * pair + 1], a, b[2], b[3]);
    }
  }
}

template <int width>
__device__ void load_all_a(FragmentA (&a)[width / 16], SharedRows<width> rows, int row, int lane) {
#pragma unroll
  for (int part = 0; part < width / 16; ++part) a[part] = load_a(rows, row, part * 16, lane);
}

// Scores are made transposed, a row a key, so that probabilities and their gradients are left factors as they come.
// Rows after the last token are zeros: they add nothing.
template <int width>
__global__ void __launch_bounds__(fragment_threads, 2) find_dk_dv(AttentionDx of) {
  extern __shared__ __align__(128) unsigned char shared[];
  constexpr int queries = tile_rows_of<width>;
  constexpr bool holds_factors = width == 64;  // k and v in registers; otherwise there are too few
  const AttentionSizes& sizes = of.sizes;
  const int head_dim = static_cast<int>(sizes.head_dim);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const std::int64_t tokens = sizes.sequence_length;
  const std::int64_t key_begin = static_cast<std::int64_t>(blockIdx.x) * fragment_rows;
  const std::int64_t kv_head = blockIdx.y;
  const std::int64_t group = sizes.heads / sizes.kv_heads;
  const std::int64_t sequence_row = blockIdx.z * tokens;
  const Rows<width> rows{shared_address(shared)};
  auto* const numbers = reinterpret_cast<float*>(shared + tiles_bytes<width>);  // lse, delta; lse, delta

  // Query heads ascending, and their blocks of queries.
  const std::int64_t first_block = key_begin / queries;
  const std::int64_t blocks = (tokens + queries - 1) / queries - first_block;
  const std::int64_t tiles = group * blocks;
  const auto begin_of = [&](std::int64_t tile) { return (first_block + tile % blocks) * queries; };
  const auto start_tile = [&](std::int64_t tile) {
    const std::int64_t head = kv_head * group + tile / blocks;
    const std::int64_t begin = begin_of(tile);
    start_rows<width, queries, fragment_threads>(rows.of_tile(tile, 0), head_at(of.q, sequence_row, head, head_dim),
                                                 of.q.stride, begin, tokens, head_dim);
    start_rows<width, queries, fragment_threads>(rows.of_tile(tile, 1), head_at(of.d_o, sequence_row, head, head_dim),
                                                 of.d_o.stride, begin, tokens, head_dim);
    for (int i = static_cast<int>(threadIdx.x); i < 2 * queries; i += fragment_threads) {
      const int row = i % queries;
      const bool is_there = begin + row < tokens;
      const float* const from = i < queries ? of.lse : of.delta;
      start_copy_4(shared_address(numbers + (tile & 1) * 2 * queries + i),
                   is_there ? from + (sequence_row + begin + row) * sizes.heads + head : from, is_there);
    }
    end_of_copies();
  };
  start_rows<width, fragment_rows, fragment_threads>(rows.stays(0), head_at(of.k, sequence_row, kv_head, head_dim),
                                                     of.k.stride, key_begin, tokens, head_dim);
  start_rows<width, fragment_rows, fragment_threads>(rows.stays(1), head_at(of.v, sequence_row, kv_head, head_dim),
                                                     of.v.stride, key_begin, tokens, head_dim);
  start_tile(0);

  FragmentA k[width / 16];
  FragmentA v[width / 16];
  FragmentC dk[width / 8] = {};
  FragmentC dv[width / 8] = {};
  const float scale = sizes.scale * log2_of_e;
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) {
      start_tile(tile + 1);
      wait_for_copies<1>();
    } else {
      wait_for_copies<0>();
    }
    __syncthreads();
    if (holds_factors && tile == 0) {
      load_all_a<width>(k, rows.stays(0), warp_row, lane);
      load_all_a<width>(v, rows.stays(1), warp_row, lane);
    }
    const float* const lse = numbers + (tile & 1) * 2 * queries;
    const float* const delta = lse + queries;

    FragmentC p[queries / 8] = {};
    FragmentC ds[queries / 8] = {};
    if constexpr (!holds_factors) load_all_a<width>(k, rows.stays(0), warp_row, lane);
    multiply_by_columns<width, queries>(p, k, rows.of_tile(tile, 0), lane);
    if constexpr (!holds_factors) load_all_a<width>(v, rows.stays(1), warp_row, lane);
    multiply_by_columns<width, queries>(ds, v, rows.of_tile(tile, 1), lane);
    const std::int64_t begin = begin_of(tile);
    const bool crosses = key_begin + fragment_rows - 1 > begin;
    const int key = static_cast<int>(key_begin - begin) + warp_row + lane / 4;  // counted from the first query
#pragma unroll
    for (int n = 0; n < queries / 8; ++n) {
#pragma unroll
      for (int col = 0; col < 2; ++col) {
        const int query = 8 * n + 2 * (lane % 4) + col;
        const float shift = -lse[query] * log2_of_e;
        const float less = delta[query];
#pragma unroll
        for (int e = col; e < 4; e += 2) {
          float probability = exp2_near(fmaf(p[n].of[e], scale, shift));
          if (crosses && key + e / 2 * 8 > query) probability = 0;
          p[n].of[e] = probability;
          ds[n].of[e] = probability * (ds[n].of[e] - less) * sizes.scale;
        }
      }
    }
    multiply_by_rows<width, queries>(dv, p, rows.of_tile(tile, 1), lane);
    multiply_by_rows<width, queries>(dk, ds, rows.of_tile(tile, 0), lane);
    __syncthreads();
  }
  const std::int64_t begin = key_begin + warp_row;
  store_rows<width>(dk, rows.stays(0), warp_row, head_at(of.dk, sequence_row, kv_head, head_dim), of.dk.stride, begin,
                    tokens, head_dim, lane);
  store_rows<width>(dv, rows.stays(1), warp_row, head_at(of.dv, sequence_row, kv_head, head_dim), of.dv.stride, begin,
                    tokens, head_dim, lane);
}

template <int width>
__global__ void __launch_bounds__(fragment_threads, 2) find_dq(AttentionDx of) {
  extern __shared__ __align__(128) unsigned char shared[];
  constexpr int keys = tile_rows_of<width>;
  const AttentionSizes& sizes = of.sizes;
  const int head_dim = static_cast<int>(sizes.head_dim);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const std::int64_t tokens = sizes.sequence_length;
  const std::int64_t query_begin =
      static_cast<std::int64_t>(gridDim.x - 1 - blockIdx.x) * fragment_rows;  // longest first
  const std::int64_t head = blockIdx.y;
  const std::int64_t kv_head = head / (sizes.heads / sizes.kv_heads);
  const std::int64_t sequence_row = blockIdx.z * tokens;
  const bf16_bits* const k = head_at(of.k, sequence_row, kv_head, head_dim);
  const bf16_bits* const v = head_at(of.v, sequence_row, kv_head, head_dim);
  const Rows<width> rows{shared_address(shared)};
  const auto start_tile = [&](std::int64_t tile) {
    start_rows<width, keys, fragment_threads>(rows.of_tile(tile, 0), k, of.k.stride, tile * keys, tokens, head_dim);
    start_rows<width, keys, fragment_threads>(rows.of_tile(tile, 1), v, of.v.stride, tile * keys, tokens, head_dim);
    end_of_copies();
  };
  start_rows<width, fragment_rows, fragment_threads>(rows.stays(0), head_at(of.q, sequence_row, head, head_dim),
                                                     of.q.stride, query_begin, tokens, head_dim);
  start_rows<width, fragment_rows, fragment_threads>(rows.stays(1), head_at(of.d_o, sequence_row, head, head_dim),
                                                     of.d_o.stride, query_begin, tokens, head_dim);
  start_tile(0);

  float shift[2];
  float less[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t query = query_begin + warp_row + lane / 4 + 8 * half;
    const std::int64_t i = (sequence_row + query) * sizes.heads + head;
    shift[half] = query < tokens ? -of.lse[i] * log2_of_e : 0.0F;
    less[half] = query < tokens ? of.delta[i] : 0.0F;
  }
  FragmentA q[width / 16];
  FragmentA d_o[width / 16];
  FragmentC dq[width / 8] = {};
  const float scale = sizes.scale * log2_of_e;
  const std::int64_t last_query = query_begin + fragment_rows < tokens ? query_begin + fragment_rows - 1 : tokens - 1;
  const std::int64_t tiles = last_query / keys + 1;
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) {
      start_tile(tile + 1);
      wait_for_copies<1>();
    } else {
      wait_for_copies<0>();
    }
    __syncthreads();
    if (tile == 0) {
      load_all_a<width>(q, rows.stays(0), warp_row, lane);
      load_all_a<width>(d_o, rows.stays(1), warp_row, lane);
    }
    FragmentC p[keys / 8] = {};
    FragmentC ds[keys / 8] = {};
    multiply_by_columns<width, keys>(p, q, rows.of_tile(tile, 0), lane);
    multiply_by_columns<width, keys>(ds, d_o, rows.of_tile(tile, 1), lane);
    const bool crosses = (tile + 1) * keys - 1 > query_begin;
    const int first_key = static_cast<int>(tile * keys - query_begin) + 2 * (lane % 4);
#pragma unroll
    for (int n = 0; n < keys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float probability = exp2_near(fmaf(p[n].of[e], scale, shift[e / 2]));
        if (crosses && first_key + 8 * n + e % 2 > warp_row + lane / 4 + e / 2 * 8) probability = 0;
        ds[n].of[e] = probability * (ds[n].of[e] - less[e / 2]) * sizes.scale;
      }
    }
    multiply_by_rows<width, keys>(dq, ds, rows.of_tile(tile, 0), lane);
    __syncthreads();
  }
  store_rows<width>(dq, rows.stays(0), warp_row, head_at(of.dq, sequence_row, head, head_dim), of.dq.stride,
                    query_begin + warp_row, tokens, head_dim, lane);
}

template <int width>
void run(Stream stream, const AttentionDx& of) {
  const AttentionSizes& sizes = of.sizes;
  constexpr int lanes = width / 8;
  find_delta<lanes><<<blocks_for(sizes.sequences * sizes.sequence_length * sizes.heads, fragment_threads / lanes),
                      fragment_threads, 0, stream>>>(of);
  const unsigned blocks = blocks_for(sizes.sequence_length, fragment_rows);
  const auto sequences = static_cast<unsigned>(sizes.sequences);
  cudaFuncSetAttribute(find_dk_dv<width>, cudaFuncAttributeMaxDynamicSharedMemorySize, dk_dv_bytes<width>);
  find_dk_dv<width><<<dim3(blocks, static_cast<unsigned>(sizes.kv_heads), sequences), fragment_threads,
                      dk_dv_bytes<width>, stream>>>(of);
  cudaFuncSetAttribute(find_dq<width>, cudaFuncAttributeMaxDynamicSharedMemorySize, tiles_bytes<width>);
  find_dq<width>
      <<<dim3(blocks, static_cast<unsigned>(sizes.heads), sequences), fragment_threads, tiles_bytes<width>, stream>>>(
          of);
}

}  // namespace

void attention_dx_of_fragments(Stream stream, const AttentionDx& of) {
  of.sizes.head_dim <= 64 ? run<64>(stream, of) : run<128>(stream, of);
}

}  // namespace spillway::cuda
