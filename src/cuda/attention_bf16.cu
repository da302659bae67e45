// Forward: one block 64 queries of a head and sequence, which goes through the blocks of keys in ascending order. Terms
// are relative to the largest score so far, and what was summed is scaled when a larger one comes.
#include "cuda/attention_bf16.cuh"
#include "cuda/attention_tiles.h"

namespace spillway::cuda {
namespace {

constexpr int keys = 64;  // of a tile

template <int width>
constexpr int shared_bytes = SharedRows<width>::bytes(fragment_rows) + 4 * SharedRows<width>::bytes(keys);
static_assert(shared_bytes<128> <= least_shared_bytes);

template <int width>
__global__ void __launch_bounds__(fragment_threads) attend(Attention of) {
  extern __shared__ __align__(128) unsigned char shared[];
  constexpr int score_tiles = keys / 8;
  constexpr int out_tiles = width / 8;
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

  const SharedRows<width> q_rows{shared_address(shared)};
  const auto key_rows = [&](int which) {  // k, v of the even tiles, k, v of the odd ones
    return SharedRows<width>{q_rows.first + static_cast<std::uint32_t>(SharedRows<width>::bytes(fragment_rows) +
                                                                       which * SharedRows<width>::bytes(keys))};
  };
  const auto start_keys = [&](std::int64_t tile) {
    const int which = static_cast<int>(tile & 1) * 2;
    start_rows<width, keys, fragment_threads>(key_rows(which), k, of.k.stride, tile * keys, tokens, head_dim);
    start_rows<width, keys, fragment_threads>(key_rows(which + 1), v, of.v.stride, tile * keys, tokens, head_dim);
    end_of_copies();
  };
  start_rows<width, fragment_rows, fragment_threads>(q_rows, head_at(of.q, sequence_row, head, head_dim), of.q.stride,
                                                     query_begin, tokens, head_dim);
  start_keys(0);

  FragmentA q[width / 16];
  FragmentC out[out_tiles] = {};
  float largest[2] = {-infinity(), -infinity()};  // of rows lane / 4 and the eighth after it
  float sum[2] = {0, 0};                          // of this thread's columns
  const float scale = sizes.scale * log2_of_e;
  const std::int64_t last_query = query_begin + fragment_rows < tokens ? query_begin + fragment_rows - 1 : tokens - 1;
  const std::int64_t tiles = last_query / keys + 1;
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) {
      start_keys(tile + 1);
      wait_for_copies<1>();
    } else {
      wait_for_copies<0>();
    }
    __syncthreads();
    if (tile == 0) {
#pragma unroll
      for (int part = 0; part < width / 16; ++part) q[part] = load_a(q_rows, warp_row, part * 16, lane);
    }
    const SharedRows<width> k_rows = key_rows(static_cast<int>(tile & 1) * 2);
    const SharedRows<width> v_rows = key_rows(static_cast<int>(tile & 1) * 2 + 1);

    FragmentC scores[score_tiles] = {};
#pragma unroll
    for (int part = 0; part < width / 16; ++part) {
#pragma unroll
      for (int pair = 0; pair < score_tiles / 2; ++pair) {
        std::uint32_t b[4];
        load_b_of_columns(b, k_rows, pair * 16, part * 16, lane);
        multiply_add(scores[2 * pair], q[part], b[0], b[1]);
        multiply_add(scores[2 * pair + 1], q[part], b[2], b[3]);
      }
    }
    if ((tile + 1) * keys - 1 > query_begin) {
      const int first_key = static_cast<int>(tile * keys - query_begin) + 2 * (lane % 4);
#pragma unroll
      for (int n = 0; n < score_tiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (first_key + 8 * n + e % 2 > warp_row + lane / 4 + e / 2 * 8) scores[n].of[e] = -infinity();
        }
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = largest[half];
#pragma unroll
      for (int n = 0; n < score_tiles; ++n) {
        most = fmaxf(most, fmaxf(scores[n].of[2 * half], scores[n].of[2 * half + 1]));
      }
      most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, 2));
      const float shrinks = exp2_near((largest[half] - most) * scale);
      largest[half] = most;
      const float shift = -most * scale;
      float added = 0;
#pragma unroll
      for (int n = 0; n < score_tiles; ++n) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          scores[n].of[e] = exp2_near(fmaf(scores[n].of[e], scale, shift));
          added += scores[n].of[e];
        }
      }
      sum[half] = fmaf(sum[half], shrinks, added);
#pragma unroll
      for (int n = 0; n < out_tiles; ++n) {
        out[n].of[2 * half] *= shrinks;
        out[n].of[2 * half + 1] *= shrinks;
      }
    }
#pragma unroll
    for (int part = 0; part < keys / 16; ++part) {
      const FragmentA terms = rounded(scores[2 * part], scores[2 * part + 1]);
#pragma unroll
      for (int pair = 0; pair < out_tiles / 2; ++pair) {
        std::uint32_t b[4];
        load_b_of_rows(b, v_rows, part * 16, pair * 16, lane);
        multiply_add(out[2 * pair], terms, b[0], b[1]);
        multiply_add(out[2 * pair + 1], terms, b[2], b[3]);
      }
    }
    __syncthreads();  // before the tile after the next takes this one's place
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum[half] += __shfl_xor_sync(0xffffffffU, sum[half], 1);
    sum[half] += __shfl_xor_sync(0xffffffffU, sum[half], 2);
    const float inverse = 1.0F / sum[half];
#pragma unroll
    for (int n = 0; n < out_tiles; ++n) {
      out[n].of[2 * half] *= inverse;
      out[n].of[2 * half + 1] *= inverse;
    }
    const std::int64_t query = query_begin + warp_row + lane / 4 + 8 * half;
    if (lane % 4 == 0 && query < tokens) {
      of.lse[(sequence_row + query) * sizes.heads + head] = fmaf(largest[half], sizes.scale, logf(sum[half]));
    }
  }
  store_rows<width>(out, q_rows, warp_row, head_at(of.o, sequence_row, head, head_dim), of.o.stride,
                    query_begin + warp_row, tokens, head_dim, lane);
}

template <int width>
void run(Stream stream, const Attention& of) {
  cudaFuncSetAttribute(attend<width>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes<width>);
  const dim3 grid(blocks_for(of.sizes.sequence_length, fragment_rows), static_cast<unsigned>(of.sizes.heads),
                  static_cast<unsigned>(of.sizes.sequences));
  attend<width><<<grid, fragment_threads, shared_bytes<width>, stream>>>(of);
}

}  // namespace

void attention_of_fragments(Stream stream, const Attention& of) {
  of.sizes.head_dim <= 64 ? run<64>(stream, of) : run<128>(stream, of);
}

}  // namespace spillway::cuda
