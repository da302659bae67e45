// Causal attention, backward, in three kernels: delta = do·o of each row and head; dk and dv, one block a key block,
// key/value head and sequence, which goes through the query heads and query blocks in ascending order; dq, one block a
// query block, query head and sequence, which goes through the key blocks. Each sum has one owner and one order; the
// price is that scores are made twice.
#include "cuda/attention_bf16.cuh"
#include "cuda/launch.h"
#include "cuda/tiles.cuh"

namespace spillway::cuda {
namespace {

template <typename T>
struct BackwardShared {
  __device__ BackwardShared(unsigned char* start, const AttentionDxLayout& at)
      : q(tile_at<T>(start, at.q, at.rows.head_stride)),
        d_o(tile_at<T>(start, at.d_o, at.rows.head_stride)),
        k(tile_at<T>(start, at.k, at.rows.head_stride)),
        v(tile_at<T>(start, at.v, at.rows.head_stride)),
        scores(tile_at<float>(start, at.scores, at.rows.key_stride)),
        dp(tile_at<float>(start, at.dp, at.rows.key_stride)),
        p(tile_at<T>(start, at.p, at.rows.key_stride)),
        ds(tile_at<T>(start, at.ds, at.rows.key_stride)),
        lse(reinterpret_cast<float*>(start + at.lse)),
        delta(reinterpret_cast<float*>(start + at.delta)),
        first(tile_at<float>(start, at.first, at.rows.head_stride)),
        second(tile_at<float>(start, at.second, at.rows.head_stride)) {}

  Tile<T> q, d_o, k, v;
  Tile<float> scores, dp;
  Tile<T> p, ds;
  float* lse;
  float* delta;
  Tile<float> first, second;  // dk and dv, or dq and nothing
};

// Where the heads of one sequence begin.
template <typename T>
struct Place {
  __device__ Place(const AttentionDx& of, std::int64_t sequence, std::int64_t head)
      : head_dim(of.sizes.head_dim),
        sequence_row(sequence * of.sizes.sequence_length),
        kv_head(head / (of.sizes.heads / of.sizes.kv_heads)),
        q(at(of.q, head)),
        k(at(of.k, kv_head)),
        v(at(of.v, kv_head)),
        o(at(of.o, head)),
        d_o(at(of.d_o, head)) {}

  __device__ const T* at(const Heads& heads, std::int64_t index) const {
    return static_cast<const T*>(heads.first) + sequence_row * heads.stride + index * head_dim;
  }
  __device__ T* at(const HeadsOut& heads, std::int64_t index) const {
    return static_cast<T*>(heads.first) + sequence_row * heads.stride + index * head_dim;
  }

  std::int64_t head_dim, sequence_row, kv_head;
  const T *q, *k, *v, *o, *d_o;
};

// One warp a row and head.
template <typename T>
__global__ void find_delta(AttentionDx of) {
  const AttentionSizes& sizes = of.sizes;
  const std::int64_t rows = sizes.sequences * sizes.sequence_length;
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * (attention_threads / 32) + threadIdx.x / 32;
  if (item >= rows * sizes.heads) return;
  const std::int64_t row = item / sizes.heads;
  const std::int64_t head = item % sizes.heads;
  const T* const o = static_cast<const T*>(of.o.first) + row * of.o.stride + head * sizes.head_dim;
  const T* const d_o = static_cast<const T*>(of.d_o.first) + row * of.d_o.stride + head * sizes.head_dim;
  float sum = 0;
  for (std::int64_t i = threadIdx.x % 32; i < sizes.head_dim; i += 32) sum += widen(d_o[i]) * widen(o[i]);
  for (int width = 16; width >= 1; width /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, width);
  if (threadIdx.x % 32 == 0) of.delta[item] = sum;
}

// q, do, lse and delta of a block of queries. Rows after the last token get lse = infinity, hence probability 0.
template <typename T, int queries>
__device__ void load_queries(const AttentionDx& of, const Place<T>& place, std::int64_t head, std::int64_t begin,
                             int width, BackwardShared<T>& at) {
  const std::int64_t tokens = of.sizes.sequence_length;
  const auto head_dim = static_cast<int>(place.head_dim);
  load_tile(place.q, of.q.stride, begin, tokens, queries, head_dim, width, at.q);
  load_tile(place.d_o, of.d_o.stride, begin, tokens, queries, head_dim, width, at.d_o);
  for (int row = static_cast<int>(threadIdx.x); row < queries; row += attention_threads) {
    const bool token = begin + row < tokens;
    const std::int64_t i = (place.sequence_row + begin + row) * of.sizes.heads + head;
    at.lse[row] = token ? of.lse[i] : infinity();
    at.delta[row] = token ? of.delta[i] : 0.0F;
  }
}

// p and ds of a block of queries and a block of keys, from q, do, k and v.
template <typename T, int queries, int keys>
__device__ void make_gradients(float scale, std::int64_t query_begin, std::int64_t key_begin, int width,
                               BackwardShared<T>& at) {
  TileProduct<T, Side::plain, Side::transposed>::run(read_only(at.q), read_only(at.k), at.scores, queries, keys, width,
                                                     false);
  TileProduct<T, Side::plain, Side::transposed>::run(read_only(at.d_o), read_only(at.v), at.dp, queries, keys, width,
                                                     false);
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < queries * keys; e += attention_threads) {
    const int row = e / keys;
    const int col = e % keys;
    float probability = 0;
    float gradient = 0;
    if (key_begin + col <= query_begin + row) {
      probability = exp_below_one(at.scores.first[row * at.scores.ld + col] * scale - at.lse[row]);
      gradient = probability * (at.dp.first[row * at.dp.ld + col] - at.delta[row]) * scale;
    }
    at.p.first[row * at.p.ld + col] = narrow<T>(probability);
    at.ds.first[row * at.ds.ld + col] = narrow<T>(gradient);
  }
  __syncthreads();
}

__device__ void clear(Tile<float> tile, int rows) {
  for (int e = static_cast<int>(threadIdx.x); e < rows * tile.ld; e += attention_threads) tile.first[e] = 0.0F;
}

template <typename T, int queries, int keys>
__global__ void __launch_bounds__(attention_threads) find_dk_dv(AttentionDx of, AttentionDxLayout layout) {
  extern __shared__ __align__(128) unsigned char shared[];
  const AttentionSizes& sizes = of.sizes;
  const int width = layout.rows.width;
  const auto head_dim = static_cast<int>(sizes.head_dim);
  BackwardShared<T> at(shared, layout);
  const std::int64_t tokens = sizes.sequence_length;
  const std::int64_t key_begin = static_cast<std::int64_t>(blockIdx.x) * keys;
  const std::int64_t group = sizes.heads / sizes.kv_heads;
  const Place<T> first(of, blockIdx.z, blockIdx.y * group);
  load_tile(first.k, of.k.stride, key_begin, tokens, keys, head_dim, width, at.k);
  load_tile(first.v, of.v.stride, key_begin, tokens, keys, head_dim, width, at.v);
  clear(at.first, keys);
  clear(at.second, keys);
  for (std::int64_t head = blockIdx.y * group; head < (blockIdx.y + 1) * group; ++head) {
    const Place<T> place(of, blockIdx.z, head);
    for (std::int64_t begin = key_begin / queries * queries; begin < tokens; begin += queries) {
      __syncthreads();  // the tiles of the block before are read
      load_queries<T, queries>(of, place, head, begin, width, at);
      __syncthreads();
      make_gradients<T, queries, keys>(sizes.scale, begin, key_begin, width, at);
      TileProduct<T, Side::transposed, Side::plain>::run(read_only(at.ds), read_only(at.q), at.first, keys, width,
                                                         queries, true);
      TileProduct<T, Side::transposed, Side::plain>::run(read_only(at.p), read_only(at.d_o), at.second, keys, width,
                                                         queries, true);
    }
  }
  __syncthreads();
  store_tile(read_only(at.first), key_begin, tokens, keys, head_dim, first.at(of.dk, blockIdx.y), of.dk.stride);
  store_tile(read_only(at.second), key_begin, tokens, keys, head_dim, first.at(of.dv, blockIdx.y), of.dv.stride);
}

template <typename T, int queries, int keys>
__global__ void __launch_bounds__(attention_threads) find_dq(AttentionDx of, AttentionDxLayout layout) {
  extern __shared__ __align__(128) unsigned char shared[];
  const AttentionSizes& sizes = of.sizes;
  const int width = layout.rows.width;
  const auto head_dim = static_cast<int>(sizes.head_dim);
  BackwardShared<T> at(shared, layout);
  const std::int64_t tokens = sizes.sequence_length;
  const std::int64_t query_begin = static_cast<std::int64_t>(gridDim.x - 1 - blockIdx.x) * queries;  // longest first
  const std::int64_t last_query = query_begin + queries < tokens ? query_begin + queries - 1 : tokens - 1;
  const Place<T> place(of, blockIdx.z, blockIdx.y);
  load_queries<T, queries>(of, place, blockIdx.y, query_begin, width, at);
  clear(at.first, queries);
  for (std::int64_t begin = 0; begin <= last_query; begin += keys) {
    __syncthreads();
    load_tile(place.k, of.k.stride, begin, tokens, keys, head_dim, width, at.k);
    load_tile(place.v, of.v.stride, begin, tokens, keys, head_dim, width, at.v);
    __syncthreads();
    make_gradients<T, queries, keys>(sizes.scale, query_begin, begin, width, at);
    TileProduct<T, Side::plain, Side::plain>::run(read_only(at.ds), read_only(at.k), at.first, queries, width, keys,
                                                  true);
  }
  __syncthreads();
  store_tile(read_only(at.first), query_begin, tokens, queries, head_dim, place.at(of.dq, blockIdx.y), of.dq.stride);
}

template <typename T, int most>
void run_dk_dv(Stream stream, const AttentionDx& of) {
  constexpr AttentionTiles tiles = dk_dv_tiles(float_held<T>, most);
  const AttentionDxLayout layout = dk_dv_layout(float_held<T>, of.sizes.head_dim);
  const auto kernel = find_dk_dv<T, tiles.queries, tiles.keys>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, layout.bytes);
  const dim3 grid(blocks_for(of.sizes.sequence_length, tiles.keys), static_cast<unsigned>(of.sizes.kv_heads),
                  static_cast<unsigned>(of.sizes.sequences));
  kernel<<<grid, attention_threads, static_cast<std::size_t>(layout.bytes), stream>>>(of, layout);
}

template <typename T, int most>
void run_dq(Stream stream, const AttentionDx& of) {
  constexpr AttentionTiles tiles = dq_tiles(float_held<T>, most);
  const AttentionDxLayout layout = dq_layout(float_held<T>, of.sizes.head_dim);
  const auto kernel = find_dq<T, tiles.queries, tiles.keys>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, layout.bytes);
  const dim3 grid(blocks_for(of.sizes.sequence_length, tiles.queries), static_cast<unsigned>(of.sizes.heads),
                  static_cast<unsigned>(of.sizes.sequences));
  kernel<<<grid, attention_threads, static_cast<std::size_t>(layout.bytes), stream>>>(of, layout);
}

template <typename T>
void run_delta(Stream stream, const AttentionDx& of) {
  const std::int64_t items = of.sizes.sequences * of.sizes.sequence_length * of.sizes.heads;
  find_delta<T><<<blocks_for(items, attention_threads / 32), attention_threads, 0, stream>>>(of);
}

template <typename T, int most>
void run(Stream stream, const AttentionDx& of) {
  run_delta<T>(stream, of);
  run_dk_dv<T, most>(stream, of);
  run_dq<T, most>(stream, of);
}

template <typename T>
void run_by_width(Stream stream, const AttentionDx& of) {
  switch (attention_width_class(of.sizes.head_dim)) {
    case 64: return run<T, 64>(stream, of);
    case 128: return run<T, 128>(stream, of);
    default: return run<T, 256>(stream, of);
  }
}

}  // namespace

void attention_dx(Stream stream, Float type, const AttentionDx& of) {
  if (has_fragment_kernels(type, of.sizes)) return attention_dx_of_fragments(stream, of);
  type == Float::f32 ? run_by_width<float>(stream, of) : run_by_width<bf16_bits>(stream, of);
}

}  // namespace spillway::cuda
