// Normalisation, a row (or group of a row) at a time. Sums over a row are taken by the threads that share it, each over
// every so manieth group of elements in ascending order, then in a fixed tree: a warp's threads where rows are short, a
// block's where they are long. Rows are read anew for each pass, from the cache.
#include "cuda/launch.h"
#include "cuda/math.cuh"

namespace spillway::cuda {
namespace {

constexpr int threads = 256;
constexpr int column_threads = 64;
constexpr std::int64_t long_row_bytes = 2048;  // from here on a row has a block to itself

// Where a thread stands: its row, and which of the threads of the row it is.
template <int warps>
struct RowThread {
  static constexpr int step = 32 * warps;
  std::int64_t row = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) / step;
  int thread = static_cast<int>(threadIdx.x) % step;
};

template <int warps>
__device__ float row_sum(float value) {
  if constexpr (warps == 1) {
#pragma unroll
    for (int width = 16; width >= 1; width /= 2) value += __shfl_xor_sync(0xffffffffU, value, width);
    return value;
  } else {
    __shared__ float shared[33];
    return block_sum(value, shared);
  }
}

template <typename T, int size>
__device__ Group<T, size> group_of(const T* row, int i) {
  return reinterpret_cast<const Group<T, size>*>(row)[i];
}

template <typename T, int size, int warps>
__global__ void __launch_bounds__(threads) layernorm_rows(Layernorm of) {
  const RowThread<warps> at;
  if (at.row >= of.rows) return;  // whole warps
  const auto cols = static_cast<int>(of.cols);
  const int groups = cols / size;
  const T* const x = static_cast<const T*>(of.x) + at.row * cols;
  T* const y = static_cast<T*>(of.y) + at.row * cols;
  float total = 0;
#pragma unroll 4
  for (int i = at.thread; i < groups; i += at.step) {
    const auto held = group_of<T, size>(x, i);
#pragma unroll
    for (int k = 0; k < size; ++k) total += widen(held.of[k]);
  }
  const float mean = row_sum<warps>(total) / static_cast<float>(cols);
  float squares = 0;
#pragma unroll 4
  for (int i = at.thread; i < groups; i += at.step) {
    const auto held = group_of<T, size>(x, i);
#pragma unroll
    for (int k = 0; k < size; ++k) {
      const float deviation = widen(held.of[k]) - mean;
      squares += deviation * deviation;
    }
  }
  const float rstd = 1.0F / sqrtf(row_sum<warps>(squares) / static_cast<float>(cols) + of.epsilon);
  if (at.thread == 0) {
    of.mean[at.row] = mean;
    of.rstd[at.row] = rstd;
  }
#pragma unroll 4
  for (int i = at.thread; i < groups; i += at.step) {
    auto held = group_of<T, size>(x, i);
    const auto w = group_of<T, size>(static_cast<const T*>(of.w), i);
    const auto b = group_of<T, size>(static_cast<const T*>(of.b), i);
#pragma unroll
    for (int k = 0; k < size; ++k) {
      held.of[k] = narrow<T>((widen(held.of[k]) - mean) * rstd * widen(w.of[k]) + widen(b.of[k]));
    }
    reinterpret_cast<Group<T, size>*>(y)[i] = held;
  }
}

// The partial sums of one block of rows: `size` columns a thread, in row order.
template <typename T, int size>
__global__ void layernorm_partials(LayernormDx of) {
  const auto cols = static_cast<int>(of.cols);
  const int group = static_cast<int>(blockIdx.x * column_threads + threadIdx.x);
  if (group * size >= cols) return;
  const std::int64_t begin = blockIdx.y * of.block_rows;
  const std::int64_t end = begin + of.block_rows < of.rows ? begin + of.block_rows : of.rows;
  Group<float, size> of_w{};
  Group<float, size> of_b{};
#pragma unroll 8
  for (std::int64_t row = begin; row < end; ++row) {
    const auto dy = group_of<T, size>(static_cast<const T*>(of.dy) + row * cols, group);
    const auto x = group_of<T, size>(static_cast<const T*>(of.x) + row * cols, group);
    const float mean = of.mean[row];
    const float rstd = of.rstd[row];
#pragma unroll
    for (int k = 0; k < size; ++k) {
      const float g = widen(dy.of[k]);
      of_w.of[k] += g * ((widen(x.of[k]) - mean) * rstd);
      of_b.of[k] += g;
    }
  }
  const std::int64_t to = static_cast<std::int64_t>(blockIdx.y) * cols;
  reinterpret_cast<Group<float, size>*>(of.partial_w + to)[group] = of_w;
  reinterpret_cast<Group<float, size>*>(of.partial_b + to)[group] = of_b;
}

// dx may be x or dy: an element is written by the thread that reads it last.
template <typename T, int size, int warps>
__global__ void __launch_bounds__(threads) layernorm_dx_rows(LayernormDx of) {
  const RowThread<warps> at;
  if (at.row >= of.rows) return;
  const auto cols = static_cast<int>(of.cols);
  const int groups = cols / size;
  const T* const x_row = static_cast<const T*>(of.x) + at.row * cols;
  const T* const dy_row = static_cast<const T*>(of.dy) + at.row * cols;
  const auto* const w_all = static_cast<const T*>(of.w);
  T* const dx = static_cast<T*>(of.dx) + at.row * cols;
  const float mean = of.mean[at.row];
  const float rstd = of.rstd[at.row];
  float plain = 0;
  float products = 0;
#pragma unroll 4
  for (int i = at.thread; i < groups; i += at.step) {
    const auto x = group_of<T, size>(x_row, i);
    const auto dy = group_of<T, size>(dy_row, i);
    const auto w = group_of<T, size>(w_all, i);
#pragma unroll
    for (int k = 0; k < size; ++k) {
      const float n = (widen(x.of[k]) - mean) * rstd;
      const float h = widen(dy.of[k]) * widen(w.of[k]);
      plain += h;
      products += h * n;
    }
  }
  const float mean_h = row_sum<warps>(plain) / static_cast<float>(cols);
  const float mean_hn = row_sum<warps>(products) / static_cast<float>(cols);
#pragma unroll 4
  for (int i = at.thread; i < groups; i += at.step) {
    const auto x = group_of<T, size>(x_row, i);
    const auto w = group_of<T, size>(w_all, i);
    auto held = group_of<T, size>(dy_row, i);
#pragma unroll
    for (int k = 0; k < size; ++k) {
      const float n = (widen(x.of[k]) - mean) * rstd;
      const float h = widen(held.of[k]) * widen(w.of[k]);
      held.of[k] = narrow<T>((h - mean_h - n * mean_hn) * rstd);
    }
    reinterpret_cast<Group<T, size>*>(dx)[i] = held;
  }
}

template <typename T, int size, int warps>
__global__ void __launch_bounds__(threads) rmsnorm_groups(Rmsnorm of) {
  const RowThread<warps> at;
  if (at.row >= of.groups) return;
  const auto width = static_cast<int>(of.width);
  const int groups = width / size;
  const T* const x = static_cast<const T*>(of.x) + at.row * width;
  T* const y = static_cast<T*>(of.y) + at.row * width;
  float squares = 0;
#pragma unroll 4
  for (int i = at.thread; i < groups; i += at.step) {
    const auto held = group_of<T, size>(x, i);
#pragma unroll
    for (int k = 0; k < size; ++k) squares += widen(held.of[k]) * widen(held.of[k]);
  }
  const float rstd = 1.0F / sqrtf(row_sum<warps>(squares) / static_cast<float>(width) + of.epsilon);
  if (at.thread == 0) of.rstd[at.row] = rstd;
#pragma unroll 4
  for (int i = at.thread; i < groups; i += at.step) {
    auto held = group_of<T, size>(x, i);
    const auto w = group_of<T, size>(static_cast<const T*>(of.w), i);
#pragma unroll
    for (int k = 0; k < size; ++k) held.of[k] = narrow<T>(widen(w.of[k]) * (widen(held.of[k]) * rstd));
    reinterpret_cast<Group<T, size>*>(y)[i] = held;
  }
}

template <typename T, int size>
__global__ void rmsnorm_partials(RmsnormDx of) {
  const auto width = static_cast<int>(of.width);
  const int group = static_cast<int>(blockIdx.x * column_threads + threadIdx.x);
  if (group * size >= width) return;
  const std::int64_t begin = blockIdx.y * of.block_groups;
  const std::int64_t end = begin + of.block_groups < of.groups ? begin + of.block_groups : of.groups;
  Group<float, size> total{};
#pragma unroll 8
  for (std::int64_t row = begin; row < end; ++row) {
    const auto dy = group_of<T, size>(static_cast<const T*>(of.dy) + row * width, group);
    const auto x = group_of<T, size>(static_cast<const T*>(of.x) + row * width, group);
    const float rstd = of.rstd[row];
#pragma unroll
    for (int k = 0; k < size; ++k) total.of[k] += widen(dy.of[k]) * (widen(x.of[k]) * rstd);
  }
  reinterpret_cast<Group<float, size>*>(of.partial + static_cast<std::int64_t>(blockIdx.y) * width)[group] = total;
}

template <typename T, int size, int warps>
__global__ void __launch_bounds__(threads) rmsnorm_dx_groups(RmsnormDx of) {
  const RowThread<warps> at;
  if (at.row >= of.groups) return;
  const auto width = static_cast<int>(of.width);
  const int groups = width / size;
  const T* const x_row = static_cast<const T*>(of.x) + at.row * width;
  const T* const dy_row = static_cast<const T*>(of.dy) + at.row * width;
  const auto* const w_all = static_cast<const T*>(of.w);
  T* const dx = static_cast<T*>(of.dx) + at.row * width;
  const float rstd = of.rstd[at.row];
  float products = 0;
#pragma unroll 4
  for (int i = at.thread; i < groups; i += at.step) {
    const auto x = group_of<T, size>(x_row, i);
    const auto dy = group_of<T, size>(dy_row, i);
    const auto w = group_of<T, size>(w_all, i);
#pragma unroll
    for (int k = 0; k < size; ++k) products += widen(dy.of[k]) * (widen(x.of[k]) * rstd) * widen(w.of[k]);
  }
  const float mean = row_sum<warps>(products) / static_cast<float>(width);
#pragma unroll 4
  for (int i = at.thread; i < groups; i += at.step) {
    const auto x = group_of<T, size>(x_row, i);
    const auto w = group_of<T, size>(w_all, i);
    auto held = group_of<T, size>(dy_row, i);
#pragma unroll
    for (int k = 0; k < size; ++k) {
      const float n = widen(x.of[k]) * rstd;
      held.of[k] = narrow<T>((widen(held.of[k]) * widen(w.of[k]) - n * mean) * rstd);
    }
    reinterpret_cast<Group<T, size>*>(dx)[i] = held;
  }
}

// Elements at a time, and warps of a row, as constants to `run`.
template <int pack, typename Run>
void with_rows(std::int64_t rows, std::int64_t cols, std::int64_t row_bytes, Run run) {
  const bool is_long = row_bytes >= long_row_bytes;
  const unsigned grid = is_long ? static_cast<unsigned>(rows) : blocks_for(rows, threads / 32);
  if (cols % pack == 0) {
    is_long ? run.template operator()<pack, 8>(grid) : run.template operator()<pack, 1>(grid);
  } else {
    is_long ? run.template operator()<1, 8>(grid) : run.template operator()<1, 1>(grid);
  }
}
static_assert(threads == 8 * 32);

template <typename Run>
void with_columns(std::int64_t rows, std::int64_t cols, std::int64_t block_rows, Run run) {
  const int size = cols % 2 == 0 ? 2 : 1;
  const dim3 grid(blocks_for(cols / size, column_threads), blocks_for(rows, block_rows));
  size == 2 ? run.template operator()<2>(grid) : run.template operator()<1>(grid);
}

template <typename T>
void run_layernorm(Stream stream, const Layernorm& of) {
  with_rows<Pack<T>::size>(
      of.rows, of.cols, of.cols * std::int64_t{sizeof(T)},
      [&]<int size, int warps>(unsigned grid) { layernorm_rows<T, size, warps><<<grid, threads, 0, stream>>>(of); });
}

// The partials first, since dx may lie in place of what they read.
template <typename T>
void run_layernorm_dx(Stream stream, const LayernormDx& of) {
  with_columns(of.rows, of.cols, of.block_rows,
               [&]<int size>(dim3 grid) { layernorm_partials<T, size><<<grid, column_threads, 0, stream>>>(of); });
  with_rows<Pack<T>::size>(
      of.rows, of.cols, of.cols * std::int64_t{sizeof(T)},
      [&]<int size, int warps>(unsigned grid) { layernorm_dx_rows<T, size, warps><<<grid, threads, 0, stream>>>(of); });
}

template <typename T>
void run_rmsnorm(Stream stream, const Rmsnorm& of) {
  with_rows<Pack<T>::size>(
      of.groups, of.width, of.width * std::int64_t{sizeof(T)},
      [&]<int size, int warps>(unsigned grid) { rmsnorm_groups<T, size, warps><<<grid, threads, 0, stream>>>(of); });
}

template <typename T>
void run_rmsnorm_dx(Stream stream, const RmsnormDx& of) {
  with_columns(of.groups, of.width, of.block_groups,
               [&]<int size>(dim3 grid) { rmsnorm_partials<T, size><<<grid, column_threads, 0, stream>>>(of); });
  with_rows<Pack<T>::size>(
      of.groups, of.width, of.width * std::int64_t{sizeof(T)},
      [&]<int size, int warps>(unsigned grid) { rmsnorm_dx_groups<T, size, warps><<<grid, threads, 0, stream>>>(of); });
}

}  // namespace

void layernorm(Stream stream, Float type, const Layernorm& of) {
  type == Float::f32 ? run_layernorm<float>(stream, of) : run_layernorm<bf16_bits>(stream, of);
}
void layernorm_dx(Stream stream, Float type, const LayernormDx& of) {
  type == Float::f32 ? run_layernorm_dx<float>(stream, of) : run_layernorm_dx<bf16_bits>(stream, of);
}
void rmsnorm(Stream stream, Float type, const Rmsnorm& of) {
  type == Float::f32 ? run_rmsnorm<float>(stream, of) : run_rmsnorm<bf16_bits>(stream, of);
}
void rmsnorm_dx(Stream stream, Float type, const RmsnormDx& of) {
  type == Float::f32 ? run_rmsnorm_dx<float>(stream, of) : run_rmsnorm_dx<bf16_bits>(stream, of);
}

}  // namespace spillway::cuda
