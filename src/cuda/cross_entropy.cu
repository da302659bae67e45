// Cross-entropy: one block a token, which goes through the tiles of its logits three times: largest, sum, gradient.
#include "cuda/launch.h"
#include "cuda/math.cuh"

namespace spillway::cuda {
namespace {

constexpr int threads = 256;

__device__ float largest_logit(const LogitTile* tiles, std::int64_t tile_count, std::int64_t row, float* shared) {
  float most = -infinity();
  for (std::int64_t t = 0; t < tile_count; ++t) {
    const float* const logits = tiles[t].logits + row * tiles[t].cols;
    for (std::int64_t i = threadIdx.x; i < tiles[t].cols; i += threads) most = fmaxf(most, logits[i]);
  }
  return block_largest(most, shared);
}

template <typename T>
__global__ void cross_entropy_rows(CrossEntropy of) {
  __shared__ float shared[33];
  __shared__ double shared_double[33];
  __shared__ float target_logit;
  const std::int64_t row = blockIdx.x;
  const std::int64_t target = of.targets[row];
  if (target >= of.vocabulary) __trap();  // ids were checked when they were read
  if (target < 0) {
    if (threadIdx.x == 0) of.losses[row] = 0.0F;
    for (std::int64_t t = 0; of.gradient && t < of.tile_count; ++t) {
      T* const dlogits = static_cast<T*>(of.tiles[t].dlogits) + row * of.tiles[t].cols;
      for (std::int64_t i = threadIdx.x; i < of.tiles[t].cols; i += threads) dlogits[i] = T{};
    }
    return;
  }
  const float largest = largest_logit(of.tiles, of.tile_count, row, shared);
  double sum = 0;
  std::int64_t before = 0;
  for (std::int64_t t = 0; t < of.tile_count; ++t) {
    const std::int64_t cols = of.tiles[t].cols;
    const float* const logits = of.tiles[t].logits + row * cols;
    for (std::int64_t i = threadIdx.x; i < cols; i += threads) {
      sum += exp_of(logits[i] - largest);
      if (before + i == target) target_logit = logits[i];
    }
    before += cols;
  }
  sum = block_sum(sum, shared_double);  // and target_logit is there for all
  if (threadIdx.x == 0) {
    of.losses[row] = static_cast<float>(static_cast<double>(largest) - static_cast<double>(target_logit) + log(sum));
  }
  if (!of.gradient) return;
  const float inverse_sum = static_cast<float>(1 / sum);
  const float scale = *of.scale;
  before = 0;
  for (std::int64_t t = 0; t < of.tile_count; ++t) {
    const std::int64_t cols = of.tiles[t].cols;
    const float* const logits = of.tiles[t].logits + row * cols;
    T* const dlogits = static_cast<T*>(of.tiles[t].dlogits) + row * cols;
    for (std::int64_t i = threadIdx.x; i < cols; i += threads) {
      const float probability = exp_of(logits[i] - largest) * inverse_sum;
      dlogits[i] = narrow<T>((before + i == target ? probability - 1.0F : probability) * scale);
    }
    before += cols;
  }
}

}  // namespace

void cross_entropy(Stream stream, Float dlogits, const CrossEntropy& of) {
  const auto grid = static_cast<unsigned>(of.rows);
  if (dlogits == Float::f32) {
    cross_entropy_rows<float><<<grid, threads, 0, stream>>>(of);
  } else {
    cross_entropy_rows<bf16_bits><<<grid, threads, 0, stream>>>(of);
  }
}

}  // namespace spillway::cuda
