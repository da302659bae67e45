// Attention over the cache of generated tokens: one block a row and query head, four warps that each take every fourth
// key with a running softmax, joined in order at the end.
#include "cuda/launch.h"
#include "cuda/math.cuh"

namespace spillway::cuda {
namespace {

constexpr int warps = 4;
constexpr int most_parts = static_cast<int>(attention_most_head_dim / 32);  // elements of a head that a thread holds

template <typename T>
__global__ void attend_cached(KvAttention of) {
  __shared__ float largests[warps];
  __shared__ float sums[warps];
  __shared__ float averages[warps][attention_most_head_dim];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const auto head_dim = static_cast<int>(of.head_dim);
  const std::int64_t row = blockIdx.x;
  const std::int64_t head = blockIdx.y;
  const std::int64_t kv_head = head / (of.heads / of.kv_heads);
  const std::int64_t stride = of.kv_heads * head_dim;
  T* const o = static_cast<T*>(of.o) + (row * of.heads + head) * head_dim;
  const std::int64_t position = of.positions[row];
  if (position < 0) {
    for (int i = static_cast<int>(threadIdx.x); i < head_dim; i += warps * 32) o[i] = T{};
    return;
  }
  const T* const q = static_cast<const T*>(of.q) + (row * of.heads + head) * head_dim;
  float query[most_parts];
  float average[most_parts];
#pragma unroll
  for (int n = 0; n < most_parts; ++n) {
    const int i = n * 32 + lane;
    query[n] = i < head_dim ? widen(q[i]) * of.scale : 0.0F;
    average[n] = 0;
  }
  float largest = -infinity();
  float sum = 0;
  for (std::int64_t token = warp; token <= position; token += warps) {
    const T* const key = static_cast<const T*>(of.keys) + token * stride + kv_head * head_dim;
    const T* const value = static_cast<const T*>(of.values) + token * stride + kv_head * head_dim;
    float score = 0;
#pragma unroll
    for (int n = 0; n < most_parts; ++n) {
      if (n * 32 + lane < head_dim) score += query[n] * widen(key[n * 32 + lane]);
    }
    for (int width = 16; width >= 1; width /= 2) score += __shfl_xor_sync(0xffffffffU, score, width);
    const float most = fmaxf(largest, score);
    const float shrink = exp_below_one(largest - most);  // 0 at the first key
    const float term = exp_below_one(score - most);
    sum = sum * shrink + term;
#pragma unroll
    for (int n = 0; n < most_parts; ++n) {
      if (n * 32 + lane < head_dim) average[n] = average[n] * shrink + term * widen(value[n * 32 + lane]);
    }
    largest = most;
  }
#pragma unroll
  for (int n = 0; n < most_parts; ++n) averages[warp][n * 32 + lane] = average[n];
  if (lane == 0) {
    largests[warp] = largest;
    sums[warp] = sum;
  }
  __syncthreads();
  float most = largests[0];
  for (int w = 1; w < warps; ++w) most = fmaxf(most, largests[w]);
  float total = 0;
  for (int w = 0; w < warps; ++w) total += sums[w] * exp_below_one(largests[w] - most);
  for (int i = static_cast<int>(threadIdx.x); i < head_dim; i += warps * 32) {
    float weighed = 0;
    for (int w = 0; w < warps; ++w) weighed += averages[w][i] * exp_below_one(largests[w] - most);
    o[i] = narrow<T>(weighed / total);
  }
}

}  // namespace

void kv_attention(Stream stream, Float type, const KvAttention& of) {
  const dim3 grid(static_cast<unsigned>(of.rows), static_cast<unsigned>(of.heads));
  if (type == Float::f32) {
    attend_cached<float><<<grid, warps * 32, 0, stream>>>(of);
  } else {
    attend_cached<bf16_bits><<<grid, warps * 32, 0, stream>>>(of);
  }
}

}  // namespace spillway::cuda
