// Causal attention, forward. One block a query block, head and sequence. Blocks of keys are gone through twice: first
// for the largest score of each query, then for the terms, their sum and their product with v. So nothing is rescaled,
// terms are rounded where the CPU's kernel rounds them, and scores exist one block at a time.
#include "cuda/attention_bf16.cuh"
#include "cuda/launch.h"
#include "cuda/tiles.cuh"

namespace spillway::cuda {
namespace {

template <typename T>
struct ForwardShared {
  __device__ ForwardShared(unsigned char* start, const AttentionLayout& at)
      : q(tile_at<T>(start, at.q, at.rows.head_stride)),
        k(tile_at<T>(start, at.k, at.rows.head_stride)),
        v(tile_at<T>(start, at.v, at.rows.head_stride)),
        scores(tile_at<float>(start, at.scores, at.rows.key_stride)),
        terms(tile_at<T>(start, at.terms, at.rows.key_stride)),
        o(tile_at<float>(start, at.o, at.rows.head_stride)) {}

  Tile<T> q, k, v;
  Tile<float> scores;
  Tile<T> terms;
  Tile<float> o;
};

template <typename T, int queries, int keys>
__global__ void __launch_bounds__(attention_threads) attend(Attention of, AttentionLayout layout) {
  extern __shared__ __align__(128) unsigned char shared[];
  constexpr int threads_a_row = attention_threads / queries;
  static_assert(threads_a_row * queries == attention_threads && 32 % threads_a_row == 0);
  const AttentionSizes& sizes = of.sizes;
  const int head_dim = static_cast<int>(sizes.head_dim);
  const int width = layout.rows.width;
  ForwardShared<T> at(shared, layout);
  const std::int64_t tokens = sizes.sequence_length;
  const std::int64_t query_begin = static_cast<std::int64_t>(gridDim.x - 1 - blockIdx.x) * queries;  // longest first
  const std::int64_t head = blockIdx.y;
  const std::int64_t kv_head = head / (sizes.heads / sizes.kv_heads);
  const std::int64_t sequence_row = blockIdx.z * tokens;
  const T* const q = static_cast<const T*>(of.q.first) + sequence_row * of.q.stride + head * head_dim;
  const T* const k = static_cast<const T*>(of.k.first) + sequence_row * of.k.stride + kv_head * head_dim;
  const T* const v = static_cast<const T*>(of.v.first) + sequence_row * of.v.stride + kv_head * head_dim;
  const std::int64_t last_query = query_begin + queries < tokens ? query_begin + queries - 1 : tokens - 1;
  const int row = static_cast<int>(threadIdx.x) / threads_a_row;
  const int part = static_cast<int>(threadIdx.x) % threads_a_row;
  const std::int64_t query = query_begin + row;

  load_tile(q, of.q.stride, query_begin, tokens, queries, head_dim, width, at.q);
  for (int e = static_cast<int>(threadIdx.x); e < queries * at.o.ld; e += attention_threads) at.o.first[e] = 0.0F;
  float largest = -infinity();
  for (std::int64_t begin = 0; begin <= last_query; begin += keys) {
    load_tile(k, of.k.stride, begin, tokens, keys, head_dim, width, at.k);
    __syncthreads();
    TileProduct<T, Side::plain, Side::transposed>::run(read_only(at.q), read_only(at.k), at.scores, queries, keys,
                                                       width, false);
    __syncthreads();
    for (int col = part; col < keys; col += threads_a_row) {
      if (begin + col <= query) largest = fmaxf(largest, at.scores.first[row * at.scores.ld + col] * sizes.scale);
    }
    __syncthreads();
  }
  for (int other = 1; other < threads_a_row; other *= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, other));
  }

  float sum = 0;
  for (std::int64_t begin = 0; begin <= last_query; begin += keys) {
    load_tile(k, of.k.stride, begin, tokens, keys, head_dim, width, at.k);
    load_tile(v, of.v.stride, begin, tokens, keys, head_dim, width, at.v);
    __syncthreads();
    TileProduct<T, Side::plain, Side::transposed>::run(read_only(at.q), read_only(at.k), at.scores, queries, keys,
                                                       width, false);
    __syncthreads();
    for (int col = part; col < keys; col += threads_a_row) {
      float term = 0;
      if (begin + col <= query) {
        term = exp_below_one(at.scores.first[row * at.scores.ld + col] * sizes.scale - largest);
        sum += term;
      }
      at.terms.first[row * at.terms.ld + col] = narrow<T>(term);
    }
    __syncthreads();
    TileProduct<T, Side::plain, Side::plain>::run(read_only(at.terms), read_only(at.v), at.o, queries, width, keys,
                                                  true);
    __syncthreads();
  }
  for (int other = 1; other < threads_a_row; other *= 2) sum += __shfl_xor_sync(0xffffffffU, sum, other);
  if (query >= tokens) return;
  T* const o = static_cast<T*>(of.o.first) + (sequence_row + query) * of.o.stride + head * head_dim;
  for (int col = part; col < head_dim; col += threads_a_row) {
    o[col] = narrow<T>(at.o.first[row * at.o.ld + col] / sum);
  }
  if (part == 0) {
    of.lse[(sequence_row + query) * sizes.heads + head] = largest + static_cast<float>(log(static_cast<double>(sum)));
  }
}

template <typename T, int most>
void run(Stream stream, const Attention& of) {
  constexpr AttentionTiles tiles = attention_tiles(float_held<T>, most);
  const AttentionLayout layout = attention_layout(float_held<T>, of.sizes.head_dim);
  const auto kernel = attend<T, tiles.queries, tiles.keys>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, layout.bytes);
  const dim3 grid(blocks_for(of.sizes.sequence_length, tiles.queries), static_cast<unsigned>(of.sizes.heads),
                  static_cast<unsigned>(of.sizes.sequences));
  kernel<<<grid, attention_threads, static_cast<std::size_t>(layout.bytes), stream>>>(of, layout);
}

template <typename T>
void run_by_width(Stream stream, const Attention& of) {
  switch (attention_width_class(of.sizes.head_dim)) {
    case 64: return run<T, 64>(stream, of);
    case 128: return run<T, 128>(stream, of);
    default: return run<T, 256>(stream, of);
  }
}

}  // namespace

void attention(Stream stream, Float type, const Attention& of) {
  if (has_fragment_kernels(type, of.sizes)) return attention_of_fragments(stream, of);
  type == Float::f32 ? run_by_width<float>(stream, of) : run_by_width<bf16_bits>(stream, of);
}

}  // namespace spillway::cuda
