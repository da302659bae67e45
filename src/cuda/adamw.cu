// The update: the operations of ops/adamw/adamw.h, each rounded by itself, so that its bits are those of the CPU's. The
// _rn forms say so whatever flags this file is compiled with.
#include "cuda/launch.h"
#include "cuda/math.cuh"

namespace spillway::cuda {
namespace {

constexpr int threads = 256;
constexpr int packed_block = 64;
constexpr std::uint32_t m_octaves = 16;
constexpr std::uint32_t v_octaves = 32;

// The layout of AdamwScalars.
struct Scalars {
  float b1, c1, b2, c2, keep, step, r, eps, noise;
};

struct Rates {
  Scalars by;
  float clip;
};

__device__ Rates rates_of(const float* scalars, const float* clip, bool decay) {
  Rates rates{*reinterpret_cast<const Scalars*>(scalars), clip == nullptr ? 1.0F : *clip};
  if (!decay) rates.by.keep = 1.0F;
  return rates;
}

__device__ float flush(float value) { return fabsf(value) < 0x1p-126F ? 0.0F : value; }

__device__ float update(float p, float& m, float& v, float grad, const Rates& rates) {
  const Scalars& by = rates.by;
  const float g = __fmul_rn(grad, rates.clip);
  m = flush(__fadd_rn(__fmul_rn(by.b1, m), __fmul_rn(by.c1, g)));
  v = flush(__fadd_rn(__fmul_rn(by.b2, v), __fmul_rn(by.c2, __fmul_rn(g, g))));
  const float divisor = __fadd_rn(__fmul_rn(__fsqrt_rn(v), by.r), by.eps);
  return __fsub_rn(__fmul_rn(p, by.keep), __fmul_rn(by.step, __fdiv_rn(m, divisor)));
}

// The split master of base/dtype.h, in integers.
__device__ float master_of(float weight, const std::uint16_t*, std::int64_t) { return weight; }
__device__ float master_of(bf16_bits weight, const std::uint16_t* low, std::int64_t i) {
  const std::uint32_t lo = low[i];
  return __uint_as_float((static_cast<std::uint32_t>(weight) << 16) + ((lo ^ 0x8000U) - 0x8000U));
}
__device__ void put_master(float* weight, std::uint16_t*, std::int64_t i, float master) { weight[i] = master; }
__device__ void put_master(bf16_bits* weight, std::uint16_t* low, std::int64_t i, float master) {
  const std::uint32_t u = __float_as_uint(master);
  weight[i] = static_cast<bf16_bits>((u + 0x8000U) >> 16);
  low[i] = static_cast<std::uint16_t>(u & 0xffffU);
}

// `size` elements a thread, each by itself.
template <typename T, int size>
__global__ void __launch_bounds__(threads) update_elements(Adamw of, std::int64_t groups) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= groups) return;
  constexpr bool is_split = sizeof(T) == 2;
  auto m = static_cast<const Group<float, size>*>(of.exp_avg)[i];
  auto v = static_cast<const Group<float, size>*>(of.exp_avg_sq)[i];
  auto weight = static_cast<const Group<T, size>*>(of.weight)[i];
  const auto grad = static_cast<const Group<T, size>*>(of.grad)[i];
  Group<std::uint16_t, size> low{};
  if (is_split) low = reinterpret_cast<const Group<std::uint16_t, size>*>(of.low)[i];
  const Rates rates = rates_of(of.scalars, of.clip, of.decay);
#pragma unroll
  for (int k = 0; k < size; ++k) {
    const float old = master_of(weight.of[k], low.of, k);
    put_master(weight.of, low.of, k, update(old, m.of[k], v.of[k], widen(grad.of[k]), rates));
  }
  static_cast<Group<float, size>*>(of.exp_avg_out)[i] = m;
  static_cast<Group<float, size>*>(of.exp_avg_sq_out)[i] = v;
  static_cast<Group<T, size>*>(of.weight_out)[i] = weight;
  if (is_split) reinterpret_cast<Group<std::uint16_t, size>*>(of.low_out)[i] = low;
}

// --- Moments in 8 bits: ops/adamw/packed.h ---

__device__ std::uint32_t base_of(std::uint32_t exponent, std::uint32_t octaves) {
  return (exponent - (octaves - 1)) << 3;
}
__device__ std::uint32_t exponent_for(std::uint32_t largest_bits, std::uint32_t octaves) {
  const std::uint32_t exponent = (largest_bits + 0xfffffU) >> 23;
  return exponent < octaves ? octaves : exponent;
}
__device__ std::uint32_t unpack(std::uint32_t code, std::uint32_t base) { return code == 0 ? 0 : (code + base) << 20; }
__device__ std::uint32_t pack(std::uint32_t bits, std::uint32_t base, std::uint32_t noise, bool keep) {
  const std::uint32_t smallest = (base + 1) << 20;
  if (bits >= smallest) return ((bits + (noise >> 12)) >> 20) - base;
  if (bits == 0) return 0;
  if (keep) return 1;
  const float share = __fmul_rn(static_cast<float>(noise >> 12), 0x1p-20F);
  return __uint_as_float(bits) > __fmul_rn(share, __uint_as_float(smallest)) ? 1 : 0;
}
__device__ std::uint32_t noise_for(std::uint32_t master, std::uint32_t m, std::uint32_t v, std::uint32_t step) {
  std::uint32_t h = master ^ (m * 0x9e3779b1U) ^ (v * 0x85ebca77U) ^ step;
  h = (h ^ (h >> 15)) * 0x2c1b3c6dU;
  h = (h ^ (h >> 12)) * 0x297a2d39U;
  return h ^ (h >> 15);
}

// One warp a block of 64 elements, two a thread: element e and e + 32.
template <typename T>
__global__ void update_packed(Adamw of, std::int64_t rows, int cols, std::int64_t row_bytes) {
  const int blocks_in_row = (cols + packed_block - 1) / packed_block;
  const std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * (threads / 32) + threadIdx.x / 32;
  if (block >= rows * blocks_in_row) return;  // whole warps
  const std::int64_t row = block / blocks_in_row;
  const int first = static_cast<int>(block % blocks_in_row) * packed_block + static_cast<int>(threadIdx.x % 32);
  const Rates rates = rates_of(of.scalars, of.clip, of.decay);
  std::uint8_t* const m_row = static_cast<std::uint8_t*>(of.exp_avg_out) + row * row_bytes;
  std::uint8_t* const v_row = static_cast<std::uint8_t*>(of.exp_avg_sq_out) + row * row_bytes;
  std::uint8_t* const m_exponent = m_row + cols + first / packed_block;
  std::uint8_t* const v_exponent = v_row + cols + first / packed_block;
  const std::uint32_t old_m = base_of(*m_exponent, m_octaves);
  const std::uint32_t old_v = base_of(*v_exponent, v_octaves);
  float p[2];
  float m[2] = {0, 0};
  float v[2] = {0, 0};
  std::uint32_t largest_m = 0;
  std::uint32_t largest_v = 0;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const int col = first + 32 * k;
    if (col >= cols) continue;
    const std::int64_t i = row * cols + col;
    const std::uint32_t code = m_row[col];
    m[k] = __uint_as_float(unpack(code & 0x7fU, old_m) | (code & 0x80U) << 24);
    v[k] = __uint_as_float(unpack(v_row[col], old_v));
    const float old = master_of(static_cast<const T*>(of.weight)[i], of.low, i);
    p[k] = update(old, m[k], v[k], widen(static_cast<const T*>(of.grad)[i]), rates);
    largest_m = max(largest_m, __float_as_uint(m[k]) & 0x7fffffffU);
    largest_v = max(largest_v, __float_as_uint(v[k]));
  }
  for (int width = 16; width >= 1; width /= 2) {
    largest_m = max(largest_m, __shfl_xor_sync(0xffffffffU, largest_m, width));
    largest_v = max(largest_v, __shfl_xor_sync(0xffffffffU, largest_v, width));
  }
  const std::uint32_t new_m = exponent_for(largest_m, m_octaves);
  const std::uint32_t new_v = exponent_for(largest_v, v_octaves);
  const auto step = static_cast<std::uint32_t>(rates.by.noise);
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const int col = first + 32 * k;
    if (col >= cols) continue;
    const std::uint32_t m_bits = __float_as_uint(m[k]);
    const std::uint32_t v_bits = __float_as_uint(v[k]);
    const std::uint32_t noise = noise_for(__float_as_uint(p[k]), m_bits, v_bits, step);
    const std::uint32_t h = noise * 0x9e3779b1U;
    put_master(static_cast<T*>(of.weight_out), of.low_out, row * cols + col, p[k]);
    m_row[col] = static_cast<std::uint8_t>(pack(m_bits & 0x7fffffffU, base_of(new_m, m_octaves), noise, false) |
                                           ((m_bits >> 24) & 0x80U));
    v_row[col] = static_cast<std::uint8_t>(pack(v_bits, base_of(new_v, v_octaves), h ^ (h >> 16), true));
  }
  if (threadIdx.x % 32 == 0) {  // all have read the old ones: the shuffles came after
    *m_exponent = static_cast<std::uint8_t>(new_m);
    *v_exponent = static_cast<std::uint8_t>(new_v);
  }
}

// Pieces begin at multiples of 16 bytes, and so do gradients unless rows are of an odd width.
template <typename T>
void run_elements(Stream stream, const Adamw& of, std::int64_t count) {
  constexpr int size = 4;
  if (count % size == 0 && is_aligned(of.grad, size * sizeof(T))) {
    update_elements<T, size><<<blocks_for(count / size, threads), threads, 0, stream>>>(of, count / size);
  } else {
    update_elements<T, 1><<<blocks_for(count, threads), threads, 0, stream>>>(of, count);
  }
}

}  // namespace

void adamw(Stream stream, Float type, const Adamw& of, std::int64_t count) {
  type == Float::f32 ? run_elements<float>(stream, of, count) : run_elements<bf16_bits>(stream, of, count);
}

void adamw_packed(Stream stream, Float type, const Adamw& of, std::int64_t rows, std::int64_t cols,
                  std::int64_t row_bytes) {
  const std::int64_t blocks = rows * ((cols + packed_block - 1) / packed_block);
  const unsigned grid = blocks_for(blocks, threads / 32);
  if (type == Float::f32) {
    update_packed<float><<<grid, threads, 0, stream>>>(of, rows, static_cast<int>(cols), row_bytes);
  } else {
    update_packed<bf16_bits><<<grid, threads, 0, stream>>>(of, rows, static_cast<int>(cols), row_bytes);
  }
}

}  // namespace spillway::cuda
