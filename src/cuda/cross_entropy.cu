// Cross-entropy: one block a token, which goes through the tiles of its logits twice. The first pass keeps for each
// thread the largest logit so far and the sum of exponentials relative to it (Milakov and Gimelshein, arXiv
// 1805.02867); the second makes the gradients, from the last tile to the first, since what was read last is still in
// the cache.
#include <type_traits>

#include "cuda/launch.h"
#include "cuda/math.cuh"

namespace spillway::cuda {
namespace {

constexpr int threads = 1024;
constexpr int pack = 4;  // logits, where their address permits it
constexpr float log2_of_e = 1.44269504088896341F;

// A thread's logits so far: the largest, and the sum of e^(logit - largest).
struct Softmax {
  float largest = -infinity();
  float sum = 0;

  __device__ float shift() const { return largest == -infinity() ? 0.0F : -largest * log2_of_e; }

  template <int size>
  __device__ void take(const Group<float, size>& logits) {
    float most = logits.of[0];
#pragma unroll
    for (int k = 1; k < size; ++k) most = fmaxf(most, logits.of[k]);
    if (most > largest) {
      sum *= exp2_near((largest - most) * log2_of_e);
      largest = most;
    }
    const float by = shift();
#pragma unroll
    for (int k = 0; k < size; ++k) sum += exp2_near(fmaf(logits.of[k], log2_of_e, by));
  }
};

__device__ bool has_packs(const void* logits, const void* dlogits, std::int64_t cols) {
  const auto addresses = reinterpret_cast<std::uintptr_t>(logits) | reinterpret_cast<std::uintptr_t>(dlogits);
  return cols % pack == 0 && addresses % (pack * sizeof(float)) == 0;
}

template <int size>
__device__ void take_row(const float* logits, std::int64_t cols, Softmax& softmax) {
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < cols / size; i += threads) {
    softmax.take(reinterpret_cast<const Group<float, size>*>(logits)[i]);
  }
}

// e^(logit - largest): near for what is rounded to bf16, to the last bits in f32.
template <typename T>
__device__ float term(float logit, float largest, float shift) {
  if constexpr (std::is_same_v<T, float>) {
    return exp_of(logit - largest);
  } else {
    return exp2_near(fmaf(logit, log2_of_e, shift));
  }
}

struct Scales {
  float largest, shift, inverse_sum, scale;
};

// dlogits may be the logits. `target` is a column of this tile, or none of them.
template <typename T, int size>
__device__ void put_row(const float* logits, T* dlogits, std::int64_t cols, std::int64_t target, const Scales& by) {
  const std::int64_t groups = cols / size;
  const std::int64_t rounds = (groups + threads - 1) / threads;
#pragma unroll 4
  for (std::int64_t round = rounds - 1; round >= 0; --round) {
    const std::int64_t i = round * threads + threadIdx.x;
    if (i >= groups) continue;
    const auto held = reinterpret_cast<const Group<float, size>*>(logits)[i];
    Group<T, size> made;
#pragma unroll
    for (int k = 0; k < size; ++k) {
      const float probability = term<T>(held.of[k], by.largest, by.shift) * by.inverse_sum;
      made.of[k] = narrow<T>((i * size + k == target ? probability - 1.0F : probability) * by.scale);
    }
    reinterpret_cast<Group<T, size>*>(dlogits)[i] = made;
  }
}

template <typename T>
__device__ T* row_of(const LogitTile& tile, std::int64_t row) {
  return tile.dlogits == nullptr ? nullptr : static_cast<T*>(tile.dlogits) + row * tile.cols;
}

template <typename T>
__global__ void __launch_bounds__(threads) cross_entropy_rows(CrossEntropy of) {
  __shared__ float shared[33];
  __shared__ double shared_double[33];
  const std::int64_t row = blockIdx.x;
  const std::int64_t target = of.targets[row];
  if (target >= of.vocabulary) __trap();  // ids were checked when they were read
  if (target < 0) {
    if (threadIdx.x == 0) of.losses[row] = 0.0F;
    for (std::int64_t t = 0; of.gradient && t < of.tile_count; ++t) {
      T* const dlogits = row_of<T>(of.tiles[t], row);
      for (std::int64_t i = threadIdx.x; i < of.tiles[t].cols; i += threads) dlogits[i] = T{};
    }
    return;
  }
  Softmax softmax;
  float target_logit = 0;  // of thread 0
  std::int64_t before = 0;
  for (std::int64_t t = 0; t < of.tile_count; ++t) {
    const std::int64_t cols = of.tiles[t].cols;
    const float* const logits = of.tiles[t].logits + row * cols;
    if (threadIdx.x == 0 && target >= before && target < before + cols) target_logit = logits[target - before];
    if (has_packs(logits, nullptr, cols)) {
      take_row<pack>(logits, cols, softmax);
    } else {
      take_row<1>(logits, cols, softmax);
    }
    before += cols;
  }
  const float largest = block_largest(softmax.largest, shared);
  const float shift = largest == -infinity() ? 0.0F : -largest * log2_of_e;
  const float share = softmax.sum * exp2_near(fmaf(softmax.largest, log2_of_e, shift));
  const double sum = block_sum(static_cast<double>(share), shared_double);
  if (threadIdx.x == 0) {
    of.losses[row] = static_cast<float>(static_cast<double>(largest) - static_cast<double>(target_logit) + log(sum));
  }
  if (!of.gradient) return;
  const Scales by{largest, shift, static_cast<float>(1 / sum), *of.scale};
  for (std::int64_t t = of.tile_count - 1; t >= 0; --t) {
    const std::int64_t cols = of.tiles[t].cols;
    const float* const logits = of.tiles[t].logits + row * cols;
    T* const dlogits = row_of<T>(of.tiles[t], row);
    before -= cols;
    if (has_packs(logits, dlogits, cols)) {
      put_row<T, pack>(logits, dlogits, cols, target - before, by);
    } else {
      put_row<T, 1>(logits, dlogits, cols, target - before, by);
    }
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
