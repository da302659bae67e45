// Causal attention, forward. One block a query block, head and sequence. Blocks of keys are gone through twice: first
// for the largest score of each query, then for the terms, their sum and their product with v. So nothing is rescaled,
// terms are rounded where the CPU's kernel rounds them, and scores exist one block at a time.
#include "cuda/launch.h"
#include "cuda/tiles.cuh"

namespace spillway::cuda {
namespace {

template <typename T, int queries, int keys>
struct ForwardShared {
  __host__ __device__ ForwardShared(unsigned char* start, int width)
      : carver{start},
        q(carver.tile<T>(queries, width)),
        k(carver.tile<T>(keys, width)),
        v(carver.tile<T>(keys, width)),
        scores(carver.tile<float>(queries, keys)),
        terms(carver.tile<T>(queries, keys)),
        o(carver.tile<float>(queries, width)) {}

  Carver carver;
  Tile<T> q, k, v;
  Tile<float> scores;
  Tile<T> terms;
  Tile<float> o;
};

template <typename T>
__device__ Tile<const T> read_only(Tile<T> tile) {
  return {tile.first, tile.ld};
}

template <typename T, int queries, int keys>
__global__ void __launch_bounds__(attention_threads) attend(Attention of) {
  extern __shared__ __align__(128) unsigned char shared[];
  constexpr int threads_a_row = attention_threads / queries;
  static_assert(threads_a_row * queries == attention_threads && 32 % threads_a_row == 0);
  const AttentionSizes& sizes = of.sizes;
  const int head_dim = static_cast<int>(sizes.head_dim);
  const int width = padded_width(head_dim);
  ForwardShared<T, queries, keys> at(shared, width);
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

template <typename T, int queries, int keys>
std::int64_t shared_bytes(std::int64_t head_dim) {
  return ForwardShared<T, queries, keys>(nullptr, padded_width(head_dim)).carver.bytes;
}

template <typename T, int queries, int keys>
void run(Stream stream, const Attention& of) {
  const auto bytes = static_cast<int>(shared_bytes<T, queries, keys>(of.sizes.head_dim));
  cudaFuncSetAttribute(attend<T, queries, keys>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  const dim3 grid(blocks_for(of.sizes.sequence_length, queries), static_cast<unsigned>(of.sizes.heads),
                  static_cast<unsigned>(of.sizes.sequences));
  attend<T, queries, keys><<<grid, attention_threads, static_cast<std::size_t>(bytes), stream>>>(of);
}

// Tiles follow from dtype and head size alone.
bool is_small(std::int64_t head_dim) { return padded_width(head_dim) <= 128; }

}  // namespace

std::int64_t attention_shared_bytes(Float type, std::int64_t head_dim) {
  if (type == Float::f32) return shared_bytes<float, 32, 32>(head_dim);
  return is_small(head_dim) ? shared_bytes<bf16_bits, 64, 64>(head_dim) : shared_bytes<bf16_bits, 32, 32>(head_dim);
}

void attention(Stream stream, Float type, const Attention& of) {
  if (type == Float::f32) {
    run<float, 32, 32>(stream, of);
  } else if (is_small(of.sizes.head_dim)) {
    run<bf16_bits, 64, 64>(stream, of);
  } else {
    run<bf16_bits, 32, 32>(stream, of);
  }
}

}  // namespace spillway::cuda
