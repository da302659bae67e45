// Arithmetic of the kernels. Contraction is off in device code as on the host (--fmad=false), division and square root
// are rounded correctly, and subnormals are kept, so that roundings and conversions have the bits of ops/simd.h; what
// has exp in it agrees within rounding.
#pragma once

#include <cstdint>

namespace spillway::cuda {

using bf16_bits = std::uint16_t;

__device__ inline float widen(float value) { return value; }
__device__ inline float widen(bf16_bits value) { return __uint_as_float(static_cast<std::uint32_t>(value) << 16); }

// The rounding of round_bf16 in base/dtype.h: to nearest, ties to even, NaN stays NaN.
__device__ inline bf16_bits round_bf16(float value) {
  const std::uint32_t u = __float_as_uint(value);
  if ((u & 0x7fffffffU) > 0x7f800000U) return static_cast<bf16_bits>((u >> 16) | 0x40U);
  return static_cast<bf16_bits>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
}

template <typename T>
__device__ T narrow(float value);
template <>
__device__ inline float narrow<float>(float value) {
  return value;
}
template <>
__device__ inline bf16_bits narrow<bf16_bits>(float value) {
  return round_bf16(value);
}

__device__ inline bool is_negative(float value) { return (__float_as_uint(value) >> 31) != 0; }
__device__ inline bool is_nan(float value) { return (__float_as_uint(value) & 0x7fffffffU) > 0x7f800000U; }
__device__ inline float infinity() { return __uint_as_float(0x7f800000U); }

// Of 2^n in the exponent field; n from -126 to 127.
__device__ inline float power_of_two(int n) { return __uint_as_float(static_cast<std::uint32_t>(n + 127) << 23); }

// The polynomial of ops/simd.h on [-ln2/2, ln2/2].
__device__ inline float exp_near_zero(float r) {
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  return p * r * r + r + 1.0F;
}

// e^x: 0 below -87.3, infinity above 88.7.
__device__ inline float exp_of(float x) {
  const bool below = is_negative(x + 87.33654F);
  const bool above = is_negative(88.72283F - x);
  const float clamped = below ? -87.33654F : above ? 88.72283F : x;
  const float shifter = 12582912.0F;
  const float n = (clamped * 1.44269504088896341F + shifter) - shifter;
  const float y = exp_near_zero((clamped - n * 0.693359375F) - n * -2.12194440e-4F);
  const int whole = static_cast<int>(n);
  const int half = whole >> 1;
  const float result = y * power_of_two(half) * power_of_two(whole - half);
  if (is_nan(x)) return x;
  return below ? 0.0F : above ? infinity() : result;
}

// The same for x of at most about 1, as in a softmax: 0 below -87.3; NaN stays NaN.
__device__ inline float exp_below_one(float x) {
  if (is_nan(x)) return x;
  if (is_negative(x + 87.33654F)) return 0.0F;
  const float shifter = 12582912.0F;
  const float shifted = x * 1.44269504088896341F + shifter;
  const float n = shifted - shifter;
  const float y = exp_near_zero((x - n * 0.693359375F) - n * -2.12194440e-4F);
  return __uint_as_float(__float_as_uint(y) + (__float_as_uint(shifted) << 23));
}

__device__ inline float sigmoid(float x) { return 1.0F / (1.0F + exp_of(-x)); }

// 2^x within two units of the last place; of minus infinity 0.
__device__ inline float exp2_near(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / (1 + e^-x) to within some units of the last place of fp32: for what is rounded to bf16 after it.
__device__ inline float sigmoid_near(float x) { return __fdividef(1.0F, 1.0F + exp2_near(x * -1.44269504088896341F)); }

// Several elements as one load or store.
template <typename T, int count>
struct alignas(count * sizeof(T)) Group {
  static constexpr int size = count;
  T of[count];
};
// Of 16 bytes.
template <typename T>
using Pack = Group<T, 16 / sizeof(T)>;

inline bool is_aligned(const void* address, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

// The sum of one number of each thread of a block, to all of them, in an order that depends on the block's size alone.
// `shared` has 33 places; the block's size is a multiple of 32.
template <typename Number>
__device__ inline Number block_sum(Number value, Number* shared) {
  for (int width = 16; width >= 1; width /= 2) value += __shfl_xor_sync(0xffffffffU, value, width);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  __syncthreads();  // of an earlier use
  if (threadIdx.x % 32 == 0) shared[warp] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
    Number total = shared[0];
    for (int w = 1; w < warps; ++w) total += shared[w];
    shared[32] = total;
  }
  __syncthreads();
  return shared[32];
}

__device__ inline float block_largest(float value, float* shared) {
  for (int width = 16; width >= 1; width /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, width));
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[warp] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
    float most = shared[0];
    for (int w = 1; w < warps; ++w) most = fmaxf(most, shared[w]);
    shared[32] = most;
  }
  __syncthreads();
  return shared[32];
}

inline unsigned blocks_for(std::int64_t items, std::int64_t each) {
  return static_cast<unsigned>((items + each - 1) / each);
}

}  // namespace spillway::cuda
