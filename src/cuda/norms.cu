// Normalisation: one block a row (or group of a row). Sums over a row are taken by the block's threads, each over every
// 256th element (or fewer threads where rows are short), then in a fixed tree.
#include "cuda/launch.h"
#include "cuda/math.cuh"

namespace spillway::cuda {
namespace {

constexpr int most_threads = 256;
constexpr int column_threads = 64;

unsigned threads_for(std::int64_t cols) {
  unsigned threads = 32;
  while (threads < most_threads && threads < cols) threads *= 2;
  return threads;
}

template <typename T>
__global__ void layernorm_rows(const T* x_all, const T* w, const T* b, T* y_all, float* means, float* rstds, int cols,
                               float epsilon) {
  __shared__ float shared[33];
  const std::int64_t row = blockIdx.x;
  const T* x = x_all + row * cols;
  T* y = y_all + row * cols;
  const int step = static_cast<int>(blockDim.x);
  float total = 0;
  for (int i = static_cast<int>(threadIdx.x); i < cols; i += step) total += widen(x[i]);
  const float mean = block_sum(total, shared) / static_cast<float>(cols);
  float squares = 0;
  for (int i = static_cast<int>(threadIdx.x); i < cols; i += step) {
    const float deviation = widen(x[i]) - mean;
    squares += deviation * deviation;
  }
  const float rstd = 1.0F / sqrtf(block_sum(squares, shared) / static_cast<float>(cols) + epsilon);
  if (threadIdx.x == 0) {
    means[row] = mean;
    rstds[row] = rstd;
  }
  for (int i = static_cast<int>(threadIdx.x); i < cols; i += step) {
    y[i] = narrow<T>((widen(x[i]) - mean) * rstd * widen(w[i]) + widen(b[i]));
  }
}

// The partial sums of one block of rows: a thread a column, in row order.
template <typename T>
__global__ void layernorm_partials(const T* x, const float* means, const float* rstds, const T* dy, float* partial_w,
                                   float* partial_b, std::int64_t rows, int cols, std::int64_t block_rows) {
  const int col = static_cast<int>(blockIdx.x * column_threads + threadIdx.x);
  if (col >= cols) return;
  const std::int64_t begin = blockIdx.y * block_rows;
  const std::int64_t end = begin + block_rows < rows ? begin + block_rows : rows;
  float of_w = 0;
  float of_b = 0;
#pragma unroll 8
  for (std::int64_t row = begin; row < end; ++row) {
    const float g = widen(dy[row * cols + col]);
    const float n = (widen(x[row * cols + col]) - means[row]) * rstds[row];
    of_w += g * n;
    of_b += g;
  }
  partial_w[static_cast<std::int64_t>(blockIdx.y) * cols + col] = of_w;
  partial_b[static_cast<std::int64_t>(blockIdx.y) * cols + col] = of_b;
}

// dx may be x or dy: an element is written by the thread that reads it last.
template <typename T>
__global__ void layernorm_dx_rows(const T* x_all, const T* w, const float* means, const float* rstds, const T* dy_all,
                                  T* dx_all, int cols) {
  __shared__ float shared[33];
  const std::int64_t row = blockIdx.x;
  const T* x = x_all + row * cols;
  const T* dy = dy_all + row * cols;
  T* dx = dx_all + row * cols;
  const float mean = means[row];
  const float rstd = rstds[row];
  const int step = static_cast<int>(blockDim.x);
  float plain = 0;
  float products = 0;
  for (int i = static_cast<int>(threadIdx.x); i < cols; i += step) {
    const float n = (widen(x[i]) - mean) * rstd;
    const float h = widen(dy[i]) * widen(w[i]);
    plain += h;
    products += h * n;
  }
  const float mean_h = block_sum(plain, shared) / static_cast<float>(cols);
  const float mean_hn = block_sum(products, shared) / static_cast<float>(cols);
  for (int i = static_cast<int>(threadIdx.x); i < cols; i += step) {
    const float n = (widen(x[i]) - mean) * rstd;
    const float h = widen(dy[i]) * widen(w[i]);
    dx[i] = narrow<T>((h - mean_h - n * mean_hn) * rstd);
  }
}

template <typename T>
__global__ void rmsnorm_groups(const T* x_all, const T* w, T* y_all, float* rstds, int width, float epsilon) {
  __shared__ float shared[33];
  const std::int64_t group = blockIdx.x;
  const T* x = x_all + group * width;
  T* y = y_all + group * width;
  const int step = static_cast<int>(blockDim.x);
  float squares = 0;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += step) {
    const float v = widen(x[i]);
    squares += v * v;
  }
  const float rstd = 1.0F / sqrtf(block_sum(squares, shared) / static_cast<float>(width) + epsilon);
  if (threadIdx.x == 0) rstds[group] = rstd;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += step) {
    y[i] = narrow<T>(widen(w[i]) * (widen(x[i]) * rstd));
  }
}

template <typename T>
__global__ void rmsnorm_partials(const T* x, const float* rstds, const T* dy, float* partial, std::int64_t groups,
                                 int width, std::int64_t block_groups) {
  const int col = static_cast<int>(blockIdx.x * column_threads + threadIdx.x);
  if (col >= width) return;
  const std::int64_t begin = blockIdx.y * block_groups;
  const std::int64_t end = begin + block_groups < groups ? begin + block_groups : groups;
  float total = 0;
#pragma unroll 8
  for (std::int64_t group = begin; group < end; ++group) {
    total += widen(dy[group * width + col]) * (widen(x[group * width + col]) * rstds[group]);
  }
  partial[static_cast<std::int64_t>(blockIdx.y) * width + col] = total;
}

template <typename T>
__global__ void rmsnorm_dx_groups(const T* x_all, const T* w, const float* rstds, const T* dy_all, T* dx_all,
                                  int width) {
  __shared__ float shared[33];
  const std::int64_t group = blockIdx.x;
  const T* x = x_all + group * width;
  const T* dy = dy_all + group * width;
  T* dx = dx_all + group * width;
  const float rstd = rstds[group];
  const int step = static_cast<int>(blockDim.x);
  float products = 0;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += step) {
    products += widen(dy[i]) * (widen(x[i]) * rstd) * widen(w[i]);
  }
  const float mean = block_sum(products, shared) / static_cast<float>(width);
  for (int i = static_cast<int>(threadIdx.x); i < width; i += step) {
    const float n = widen(x[i]) * rstd;
    dx[i] = narrow<T>((widen(dy[i]) * widen(w[i]) - n * mean) * rstd);
  }
}

dim3 partial_grid(std::int64_t rows, std::int64_t cols, std::int64_t block_rows) {
  return {blocks_for(cols, column_threads), blocks_for(rows, block_rows)};
}

template <typename T>
void run_layernorm(Stream stream, const Layernorm& of) {
  layernorm_rows<<<static_cast<unsigned>(of.rows), threads_for(of.cols), 0, stream>>>(
      static_cast<const T*>(of.x), static_cast<const T*>(of.w), static_cast<const T*>(of.b), static_cast<T*>(of.y),
      of.mean, of.rstd, static_cast<int>(of.cols), of.epsilon);
}

// The partials first, since dx may lie in place of what they read.
template <typename T>
void run_layernorm_dx(Stream stream, const LayernormDx& of) {
  const auto cols = static_cast<int>(of.cols);
  layernorm_partials<<<partial_grid(of.rows, of.cols, of.block_rows), column_threads, 0, stream>>>(
      static_cast<const T*>(of.x), of.mean, of.rstd, static_cast<const T*>(of.dy), of.partial_w, of.partial_b, of.rows,
      cols, of.block_rows);
  layernorm_dx_rows<<<static_cast<unsigned>(of.rows), threads_for(of.cols), 0, stream>>>(
      static_cast<const T*>(of.x), static_cast<const T*>(of.w), of.mean, of.rstd, static_cast<const T*>(of.dy),
      static_cast<T*>(of.dx), cols);
}

template <typename T>
void run_rmsnorm(Stream stream, const Rmsnorm& of) {
  rmsnorm_groups<<<static_cast<unsigned>(of.groups), threads_for(of.width), 0, stream>>>(
      static_cast<const T*>(of.x), static_cast<const T*>(of.w), static_cast<T*>(of.y), of.rstd,
      static_cast<int>(of.width), of.epsilon);
}

template <typename T>
void run_rmsnorm_dx(Stream stream, const RmsnormDx& of) {
  const auto width = static_cast<int>(of.width);
  rmsnorm_partials<<<partial_grid(of.groups, of.width, of.block_groups), column_threads, 0, stream>>>(
      static_cast<const T*>(of.x), of.rstd, static_cast<const T*>(of.dy), of.partial, of.groups, width,
      of.block_groups);
  rmsnorm_dx_groups<<<static_cast<unsigned>(of.groups), threads_for(of.width), 0, stream>>>(
      static_cast<const T*>(of.x), static_cast<const T*>(of.w), of.rstd, static_cast<const T*>(of.dy),
      static_cast<T*>(of.dx), width);
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
