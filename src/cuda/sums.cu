// Sums. Columns are added in row order and losses one after the other, as by the CPU's kernels: given the same bits
// they give the same bits. Squares of gradients are added by many more threads than a CPU has lanes, in double, in an
// order of their own.
#include "cuda/launch.h"
#include "cuda/math.cuh"

namespace spillway::cuda {
namespace {

constexpr int column_threads = 64;
constexpr int squares_threads = 512;
constexpr int series_threads = 256;

template <typename T>
__global__ void sum_columns(const T* x, float* sums, std::int64_t rows, std::int64_t cols, std::int64_t block_rows) {
  const std::int64_t col = static_cast<std::int64_t>(blockIdx.x) * column_threads + threadIdx.x;
  if (col >= cols) return;
  const std::int64_t begin = blockIdx.y * block_rows;
  const std::int64_t end = begin + block_rows < rows ? begin + block_rows : rows;
  float total = 0;
#pragma unroll 8
  for (std::int64_t row = begin; row < end; ++row) total += widen(x[row * cols + col]);
  sums[blockIdx.y * cols + col] = total;
}

__global__ void sum_partials(const float* partials, const float* accumulator, float* sums, std::int64_t count,
                             std::int64_t cols) {
  const std::int64_t col = static_cast<std::int64_t>(blockIdx.x) * column_threads + threadIdx.x;
  if (col >= cols) return;
  float total = accumulator != nullptr ? accumulator[col] : partials[col];
  for (std::int64_t n = accumulator != nullptr ? 0 : 1; n < count; ++n) total += partials[n * cols + col];
  sums[col] = total;
}

// One block of threads a block of the gradient: each thread adds the squares of every so manieth group of elements.
template <typename T, int size>
__global__ void sum_block_squares(const T* grad, double* sums, std::int64_t elements, std::int64_t block_elements) {
  __shared__ double shared[33];
  const std::int64_t begin = blockIdx.x * block_elements;
  const std::int64_t end = begin + block_elements < elements ? begin + block_elements : elements;
  const auto* const groups = reinterpret_cast<const Group<T, size>*>(grad + begin);
  double total = 0;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < (end - begin) / size; i += squares_threads) {
    const Group<T, size> held = groups[i];
#pragma unroll
    for (int k = 0; k < size; ++k) {
      const double wide = widen(held.of[k]);
      total += wide * wide;
    }
  }
  total = block_sum(total, shared);
  if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

// All numbers of all parts, one after the other, by the first thread of the only block; the others fetch them.
template <typename T>
__device__ double sum_in_order(const Part* parts, std::int64_t part_count) {
  __shared__ double fetched[series_threads];
  double sum = 0;
  for (std::int64_t p = 0; p < part_count; ++p) {
    const T* data = static_cast<const T*>(parts[p].data);
    const std::int64_t count = parts[p].count;
    for (std::int64_t first = 0; first < count; first += series_threads) {
      const std::int64_t i = first + threadIdx.x;
      if (i < count) fetched[threadIdx.x] = data[i];
      __syncthreads();
      const int held = static_cast<int>(count - first < series_threads ? count - first : series_threads);
      if (threadIdx.x == 0) {
        for (int k = 0; k < held; ++k) sum += fetched[k];
      }
      __syncthreads();
    }
  }
  return sum;
}

__global__ void sum_losses(const Part* parts, std::int64_t part_count, double* to) {
  const double sum = sum_in_order<float>(parts, part_count);
  if (threadIdx.x == 0) *to = sum;
}

__global__ void find_clip_factor(const Part* parts, std::int64_t part_count, const float* max_norm, double* norm,
                                 float* factor) {
  const double sum = sum_in_order<double>(parts, part_count);
  if (threadIdx.x != 0) return;
  const double root = sqrt(sum);
  const double most = *max_norm;
  const double ratio = most / (root + 1e-6);
  *norm = root;
  *factor = most > 0 ? static_cast<float>(ratio < 1.0 ? ratio : 1.0) : 1.0F;
}

template <typename T>
void run_sum_squares(Stream stream, const void* grad, double* sums, std::int64_t elements,
                     std::int64_t block_elements) {
  const unsigned grid = blocks_for(elements, block_elements);
  const auto* const first = static_cast<const T*>(grad);
  if (elements % Pack<T>::size == 0 && block_elements % Pack<T>::size == 0 && is_aligned(grad, 16)) {
    sum_block_squares<T, Pack<T>::size><<<grid, squares_threads, 0, stream>>>(first, sums, elements, block_elements);
  } else {
    sum_block_squares<T, 1><<<grid, squares_threads, 0, stream>>>(first, sums, elements, block_elements);
  }
}

}  // namespace

void column_sums(Stream stream, Float type, const void* x, float* sums, std::int64_t rows, std::int64_t cols,
                 std::int64_t block_rows) {
  const dim3 grid(blocks_for(cols, column_threads), blocks_for(rows, block_rows));
  if (type == Float::f32) {
    sum_columns<<<grid, column_threads, 0, stream>>>(static_cast<const float*>(x), sums, rows, cols, block_rows);
  } else {
    sum_columns<<<grid, column_threads, 0, stream>>>(static_cast<const bf16_bits*>(x), sums, rows, cols, block_rows);
  }
}

void add_partials(Stream stream, const float* partials, const float* accumulator, float* sums, std::int64_t count,
                  std::int64_t cols) {
  sum_partials<<<blocks_for(cols, column_threads), column_threads, 0, stream>>>(partials, accumulator, sums, count,
                                                                                cols);
}

void sum_squares(Stream stream, Float type, const void* grad, double* sums, std::int64_t elements,
                 std::int64_t block_elements) {
  type == Float::f32 ? run_sum_squares<float>(stream, grad, sums, elements, block_elements)
                     : run_sum_squares<bf16_bits>(stream, grad, sums, elements, block_elements);
}

void loss_sum(Stream stream, const Part* parts, std::int64_t part_count, double* sum) {
  sum_losses<<<1, series_threads, 0, stream>>>(parts, part_count, sum);
}

void clip_factor(Stream stream, const Part* parts, std::int64_t part_count, const float* max_norm, double* norm,
                 float* factor) {
  find_clip_factor<<<1, series_threads, 0, stream>>>(parts, part_count, max_norm, norm, factor);
}

}  // namespace spillway::cuda
