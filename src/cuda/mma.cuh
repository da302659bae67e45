// Matrix units and asynchronous copies as PTX names them, for tiles of bf16 in shared memory: mma.sync m16n8k16,
// ldmatrix and cp.async ("Parallel Thread Execution ISA", since sm_80).
//
// A warp holds fragments: of A (16 x 16) four registers, of B (16 x 8) two, of C (16 x 8, fp32) four numbers. A thread
// has of C, in row `lane / 4` and in the eighth row after it, the columns 2 * (lane % 4) and the next: c[0], c[1] and
// c[2], c[3]. So two fragments of C side by side, rounded, are one of A.
#pragma once

#include <cstdint>

#include "cuda/math.cuh"

namespace spillway::cuda {

struct FragmentA {
  std::uint32_t of[4];
};
struct FragmentC {
  float of[4];
};

// c += a·b, b given as its two registers.
__device__ inline void multiply_add(FragmentC& c, const FragmentA& a, std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c.of[0]), "+f"(c.of[1]), "+f"(c.of[2]), "+f"(c.of[3])
      : "r"(a.of[0]), "r"(a.of[1]), "r"(a.of[2]), "r"(a.of[3]), "r"(b0), "r"(b1));
}

// Two numbers rounded to nearest even, the first in the lower half.
__device__ inline std::uint32_t pair_of_bf16(float first, float second) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

// Two fragments of C side by side, rounded.
__device__ inline FragmentA rounded(const FragmentC& left, const FragmentC& right) {
  return {{pair_of_bf16(left.of[0], left.of[1]), pair_of_bf16(left.of[2], left.of[3]),
           pair_of_bf16(right.of[0], right.of[1]), pair_of_bf16(right.of[2], right.of[3])}};
}

// Rows of `width` bf16 numbers in shared memory, 64 or 128. The 16 bytes of which a row is made up change places by the
// row's number, so that neither a row's nor a column's meet in one bank.
template <int width>
struct SharedRows {
  static_assert(width == 64 || width == 128);
  std::uint32_t first;  // its address in shared memory

  __host__ __device__ static constexpr int bytes(int rows) { return rows * width * 2; }
  // `col` is a multiple of 8.
  __device__ std::uint32_t at(int row, int col) const {
    return first + static_cast<std::uint32_t>((row * (width / 8) + ((col / 8) ^ (row & 7))) * 16);
  }
};

__device__ inline std::uint32_t shared_address(const void* in_shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(in_shared));
}

__device__ inline void load_four(std::uint32_t (&to)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
__device__ inline void load_four_transposed(std::uint32_t (&to)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// A of rows [row, row + 16) and columns [col, col + 16).
template <int width>
__device__ FragmentA load_a(SharedRows<width> rows, int row, int col, int lane) {
  FragmentA a;
  load_four(a.of, rows.at(row + (lane & 15), col + (lane >> 4) * 8));
  return a;
}

// Two fragments of B, of which the rows that lie here are columns: columns [row, row + 16) of B, each two registers,
// and B's rows [col, col + 16).
template <int width>
__device__ void load_b_of_columns(std::uint32_t (&b)[4], SharedRows<width> rows, int row, int col, int lane) {
  load_four(b, rows.at(row + (lane & 7) + ((lane >> 4) & 1) * 8, col + ((lane >> 3) & 1) * 8));
}

// Two fragments of B as it lies here: its rows [row, row + 16), and columns [col, col + 16), eight to a fragment.
template <int width>
__device__ void load_b_of_rows(std::uint32_t (&b)[4], SharedRows<width> rows, int row, int col, int lane) {
  load_four_transposed(b, rows.at(row + (lane & 7) + ((lane >> 3) & 1) * 8, col + ((lane >> 4) & 1) * 8));
}

// --- Copies that go on beside other work ---

// 16 or 4 bytes; zeros where `is_there` is false, and then nothing is read.
__device__ inline void start_copy_16(std::uint32_t to, const void* from, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(is_there ? 16 : 0) : "memory");
}
__device__ inline void start_copy_4(std::uint32_t to, const void* from, bool is_there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(is_there ? 4 : 0) : "memory");
}
__device__ inline void end_of_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until all but the last `left` groups of this thread's copies are there.
template <int left>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

// `rows` rows of a head from row `begin` on, `stride` numbers apart; zeros after row `end` and after `head_dim`, a
// multiple of 8.
template <int width, int rows, int threads>
__device__ void start_rows(SharedRows<width> to, const bf16_bits* first, std::int64_t stride, std::int64_t begin,
                           std::int64_t end, int head_dim) {
  constexpr int parts = width / 8;
  static_assert(rows * parts % threads == 0);
#pragma unroll
  for (int round = 0; round < rows * parts / threads; ++round) {
    const int item = round * threads + static_cast<int>(threadIdx.x);
    const int row = item / parts;
    const int col = item % parts * 8;
    const bool is_there = begin + row < end && col < head_dim;
    start_copy_16(to.at(row, col), is_there ? first + (begin + row) * stride + col : first, is_there);
  }
}

// A warp's 16 rows of a head, rounded: through its own rows [row, row + 16) of shared memory, so that memory is written
// 16 bytes at a time.
template <int width>
__device__ void store_rows(const FragmentC (&from)[width / 8], SharedRows<width> through, int row, bf16_bits* first,
                           std::int64_t stride, std::int64_t begin, std::int64_t end, int head_dim, int lane) {
#pragma unroll
  for (int tile = 0; tile < width / 8; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t to = through.at(row + lane / 4 + 8 * half, 8 * tile) + 4U * static_cast<unsigned>(lane % 4);
      const std::uint32_t pair = pair_of_bf16(from[tile].of[2 * half], from[tile].of[2 * half + 1]);
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(pair) : "memory");
    }
  }
  __syncwarp();
  constexpr int parts = width / 8;
#pragma unroll
  for (int round = 0; round < 16 * parts / 32; ++round) {
    const int item = round * 32 + lane;
    const int col = item % parts * 8;
    const std::int64_t to_row = begin + item / parts;
    if (to_row >= end || col >= head_dim) continue;
    uint4 held;
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(held.x), "=r"(held.y), "=r"(held.z), "=r"(held.w)
                 : "r"(through.at(row + item / parts, col))
                 : "memory");
    *reinterpret_cast<uint4*>(first + to_row * stride + col) = held;
  }
}

}  // namespace spillway::cuda
