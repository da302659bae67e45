// Rotary positions: one block a row, whose cosines and sines are made once for all its heads. See ops/rope/kernel.cpp.
#include "cuda/launch.h"
#include "cuda/math.cuh"

namespace spillway::cuda {
namespace {

constexpr int threads = 128;

struct Rotation {
  float cosine, sine;
};

__device__ Rotation rotation_of(double angle) {
  constexpr double shifter = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
  const double n = (angle * 0.63661977236758134308 + shifter) - shifter;
  const double rest = (angle - n * 1.57079632673412561417) - n * 6.07710050650619224932e-11;
  const float r = static_cast<float>(rest);
  const int quarter = static_cast<int>(n);
  const float z = r * r;
  float s = -1.9515295891e-4F;
  s = s * z + 8.3321608736e-3F;
  s = s * z - 1.6666654611e-1F;
  s = s * z * r + r;
  float c = 2.443315711809948e-5F;
  c = c * z - 1.388731625493765e-3F;
  c = c * z + 4.166664568298827e-2F;
  c = c * z * z - z * 0.5F + 1.0F;
  const float sine = (quarter & 1) != 0 ? c : s;
  const float cosine = (quarter & 1) != 0 ? s : c;
  return {((quarter + 1) & 2) != 0 ? -cosine : cosine, (quarter & 2) != 0 ? -sine : sine};
}

template <typename T>
__global__ void rotate(const T* x, const std::int32_t* positions, const float* frequencies, T* y, int heads, int half,
                       bool inverse) {
  extern __shared__ float table[];  // cosines, then sines
  const std::int64_t row = blockIdx.x;
  const double position = positions[row];
  for (int i = static_cast<int>(threadIdx.x); i < half; i += threads) {
    const Rotation turn = rotation_of(static_cast<double>(frequencies[i]) * position);
    table[i] = turn.cosine;
    table[half + i] = inverse ? -turn.sine : turn.sine;
  }
  __syncthreads();
  const std::int64_t first = row * heads * 2 * half;
  for (int k = static_cast<int>(threadIdx.x); k < heads * half; k += threads) {
    const int i = k % half;
    const std::int64_t at = first + static_cast<std::int64_t>(k / half) * 2 * half + i;
    const float a = widen(x[at]);
    const float b = widen(x[at + half]);
    y[at] = narrow<T>(a * table[i] - b * table[half + i]);
    y[at + half] = narrow<T>(b * table[i] + a * table[half + i]);
  }
}

template <typename T>
void run_rope(Stream stream, const Rope& of) {
  const auto shared_bytes = static_cast<std::size_t>(of.head_dim) * sizeof(float);
  rotate<<<static_cast<unsigned>(of.rows), threads, shared_bytes, stream>>>(
      static_cast<const T*>(of.x), of.positions, of.frequencies, static_cast<T*>(of.y), static_cast<int>(of.heads),
      static_cast<int>(of.head_dim / 2), of.inverse);
}

}  // namespace

void rope(Stream stream, Float type, const Rope& of) {
  type == Float::f32 ? run_rope<float>(stream, of) : run_rope<bf16_bits>(stream, of);
}

}  // namespace spillway::cuda
