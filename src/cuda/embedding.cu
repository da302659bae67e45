// Rows by id, their gradient, and rows copied out of a matrix.
#include "cuda/launch.h"
#include "cuda/math.cuh"

namespace spillway::cuda {
namespace {

constexpr int threads = 256;

template <typename Unit>
__device__ void copy_row(const Unit* from, Unit* to, int units) {
  for (int i = static_cast<int>(threadIdx.x); i < units; i += threads) to[i] = from[i];
}

template <typename Unit>
__global__ void take_rows(const std::int32_t* ids, const Unit* tile, const Unit* previous, Unit* out,
                          std::int64_t row_begin, std::int64_t tile_rows, int units) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * units;
  const std::int64_t row = ids[blockIdx.x] - row_begin;
  if (row >= 0 && row < tile_rows) {
    copy_row(tile + row * units, out + at, units);
  } else if (previous == nullptr) {
    for (int i = static_cast<int>(threadIdx.x); i < units; i += threads) out[at + i] = Unit{};
  } else if (previous != out) {
    copy_row(previous + at, out + at, units);
  }
}

template <typename Unit>
__global__ void take_rectangle(const Unit* from, Unit* to, int units, std::int64_t row_begin, std::int64_t from_units,
                               std::int64_t skip) {
  const std::int64_t row = blockIdx.x;
  copy_row(from + (row_begin + row) * from_units + skip, to + row * units, units);
}

// One block a fresh row; of equal positions the last wins.
template <typename Unit>
__global__ void put_rows(const Unit* fresh, const std::int32_t* positions, Unit* out, int fresh_rows,
                         std::int64_t cache_rows, int units) {
  const int row = static_cast<int>(blockIdx.x);
  const std::int32_t position = positions[row];
  if (position < 0 || position >= cache_rows) return;
  int replaced = 0;
  for (int later = row + 1 + static_cast<int>(threadIdx.x); later < fresh_rows; later += threads) {
    if (positions[later] == position) replaced = 1;
  }
  if (__syncthreads_or(replaced) != 0) return;
  copy_row(fresh + static_cast<std::int64_t>(row) * units, out + static_cast<std::int64_t>(position) * units, units);
}

// One block a token. The first token of an id adds the rows of all tokens of that id, in ascending order; the others do
// nothing. So a row has one owner and its sum one order, without atomics.
template <typename T>
__global__ void add_rows(const std::int32_t* ids, const T* dx, float* out, int tokens, std::int64_t rows, int cols,
                         std::int64_t row_begin) {
  __shared__ int found[threads];
  __shared__ int found_by_warp[threads / 32];
  const int token = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const std::int32_t id = ids[token];
  const std::int64_t row = id - row_begin;
  if (row < 0 || row >= rows) return;
  int earlier = 0;
  for (int other = thread; other < token; other += threads) {
    if (ids[other] == id) earlier = 1;
  }
  if (__syncthreads_or(earlier) != 0) return;
  float* const to = out + row * cols;
  for (int first = token; first < tokens; first += threads) {
    const int other = first + thread;
    const bool same = other < tokens && ids[other] == id;
    const unsigned votes = __ballot_sync(0xffffffffU, same);
    if (thread % 32 == 0) found_by_warp[thread / 32] = __popc(votes);
    __syncthreads();
    int before = 0;
    int total = 0;
    for (int warp = 0; warp < threads / 32; ++warp) {
      if (warp < thread / 32) before += found_by_warp[warp];
      total += found_by_warp[warp];
    }
    if (same) found[before + __popc(votes & ((1U << (thread % 32)) - 1U))] = other;
    __syncthreads();
    for (int k = 0; k < total; ++k) {
      const T* const from = dx + static_cast<std::int64_t>(found[k]) * cols;
      for (int col = thread; col < cols; col += threads) to[col] += widen(from[col]);
    }
    __syncthreads();
  }
}

template <typename T>
__global__ void add_position_rows(const T* x, const T* weight, const std::int32_t* positions, T* out, int cols,
                                  std::int64_t position_count) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * cols;
  const std::int64_t position = positions[blockIdx.x];
  const bool adds = position >= 0 && position < position_count;
  for (int i = static_cast<int>(threadIdx.x); i < cols; i += threads) {
    out[at + i] = adds ? narrow<T>(widen(x[at + i]) + widen(weight[position * cols + i])) : x[at + i];
  }
}

// Calls run with a null pointer of the widest unit that divides all of these.
template <typename Run>
void with_unit(std::int64_t bytes, Run run) {
  if (bytes % 16 == 0) {
    run(static_cast<uint4*>(nullptr), 16);
  } else if (bytes % 4 == 0) {
    run(static_cast<std::uint32_t*>(nullptr), 4);
  } else if (bytes % 2 == 0) {
    run(static_cast<std::uint16_t*>(nullptr), 2);
  } else {
    run(static_cast<std::uint8_t*>(nullptr), 1);
  }
}

template <typename T>
void run_embed_grad(Stream stream, const EmbedGrad& of) {
  add_rows<<<static_cast<unsigned>(of.tokens), threads, 0, stream>>>(of.ids, static_cast<const T*>(of.dx), of.out,
                                                                     static_cast<int>(of.tokens), of.rows,
                                                                     static_cast<int>(of.cols), of.row_begin);
}

template <typename T>
void run_add_positions(Stream stream, const AddPositions& of) {
  add_position_rows<<<static_cast<unsigned>(of.rows), threads, 0, stream>>>(
      static_cast<const T*>(of.x), static_cast<const T*>(of.weight), of.positions, static_cast<T*>(of.out),
      static_cast<int>(of.cols), of.position_count);
}

}  // namespace

void embed_rows(Stream stream, const EmbedRows& of) {
  with_unit(of.row_bytes, [&]<typename Unit>(Unit*, std::int64_t unit_bytes) {
    take_rows<<<static_cast<unsigned>(of.rows), threads, 0, stream>>>(
        of.ids, static_cast<const Unit*>(of.tile), static_cast<const Unit*>(of.previous), static_cast<Unit*>(of.out),
        of.row_begin, of.tile_rows, static_cast<int>(of.row_bytes / unit_bytes));
  });
}

void embed_grad(Stream stream, Float type, const EmbedGrad& of) {
  type == Float::f32 ? run_embed_grad<float>(stream, of) : run_embed_grad<bf16_bits>(stream, of);
}

void add_positions(Stream stream, Float type, const AddPositions& of) {
  type == Float::f32 ? run_add_positions<float>(stream, of) : run_add_positions<bf16_bits>(stream, of);
}

void copy_rows(Stream stream, const CopiedRows& of) {
  with_unit(of.row_bytes | of.from_row_bytes | of.skip_bytes, [&]<typename Unit>(Unit*, std::int64_t unit_bytes) {
    take_rectangle<<<static_cast<unsigned>(of.rows), threads, 0, stream>>>(
        static_cast<const Unit*>(of.from), static_cast<Unit*>(of.to), static_cast<int>(of.row_bytes / unit_bytes),
        of.row_begin, of.from_row_bytes / unit_bytes, of.skip_bytes / unit_bytes);
  });
}

void kv_append(Stream stream, const KvAppend& of) {
  with_unit(of.row_bytes, [&]<typename Unit>(Unit*, std::int64_t unit_bytes) {
    put_rows<<<static_cast<unsigned>(of.fresh_rows), threads, 0, stream>>>(
        static_cast<const Unit*>(of.fresh), of.positions, static_cast<Unit*>(of.out), static_cast<int>(of.fresh_rows),
        of.cache_rows, static_cast<int>(of.row_bytes / unit_bytes));
  });
}

}  // namespace spillway::cuda
