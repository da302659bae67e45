// Ops that work element by element, 16 bytes of a value at a time.
#include <type_traits>

#include "cuda/launch.h"
#include "cuda/math.cuh"

namespace spillway::cuda {
namespace {

constexpr int threads = 256;

template <typename T>
struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};

// See ops/gelu/kernel.cpp.
constexpr float twice_root_two_over_pi = 1.59576912160573071176F;
constexpr float cubic = 0.044715F;

// For what is rounded to bf16 an exponential that is near will do; in f32 it is that of the CPU.
template <typename T>
__device__ float sigmoid_for(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return sigmoid(x);
  } else {
    return sigmoid_near(x);
  }
}

template <typename T>
struct Gelu {
  __device__ float operator()(float v) const {
    return v * sigmoid_for<T>((v * v * cubic + 1.0F) * v * twice_root_two_over_pi);
  }
};

template <typename T>
struct GeluDx {
  __device__ float operator()(float v, float dy) const {
    const float square = v * v;
    const float s = sigmoid_for<T>((square * cubic + 1.0F) * v * twice_root_two_over_pi);
    const float slope = (square * (3.0F * cubic) + 1.0F) * twice_root_two_over_pi;
    return dy * (s + v * s * (1.0F - s) * slope);
  }
};

template <typename T>
struct Swiglu {
  __device__ float operator()(float gate, float up) const { return gate * sigmoid_for<T>(gate) * up; }
};

// The packs of a value, then the elements that are left, one a thread.
template <typename T, typename OnPack, typename OnElement>
__device__ void for_elements(std::int64_t count, OnPack on_pack, OnElement on_element) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  const std::int64_t packs = count / Pack<T>::size;
  if (thread < packs) {
    on_pack(thread);
  } else if (packs * Pack<T>::size + (thread - packs) < count) {
    on_element(packs * Pack<T>::size + (thread - packs));
  }
}

template <typename T>
unsigned grid_for(std::int64_t count) {
  return blocks_for(count / Pack<T>::size + Pack<T>::size, threads);
}

template <typename T, typename F>
__global__ void map_one(const T* x, T* y, std::int64_t count, F f) {
  for_elements<T>(
      count,
      [&](std::int64_t i) {
        Pack<T> pack = reinterpret_cast<const Pack<T>*>(x)[i];
#pragma unroll
        for (int k = 0; k < Pack<T>::size; ++k) pack.of[k] = narrow<T>(f(widen(pack.of[k])));
        reinterpret_cast<Pack<T>*>(y)[i] = pack;
      },
      [&](std::int64_t i) { y[i] = narrow<T>(f(widen(x[i]))); });
}

template <typename T, typename F>
__global__ void map_two(const T* a, const T* b, T* y, std::int64_t count, F f) {
  for_elements<T>(
      count,
      [&](std::int64_t i) {
        Pack<T> pack = reinterpret_cast<const Pack<T>*>(a)[i];
        const Pack<T> other = reinterpret_cast<const Pack<T>*>(b)[i];
#pragma unroll
        for (int k = 0; k < Pack<T>::size; ++k) pack.of[k] = narrow<T>(f(widen(pack.of[k]), widen(other.of[k])));
        reinterpret_cast<Pack<T>*>(y)[i] = pack;
      },
      [&](std::int64_t i) { y[i] = narrow<T>(f(widen(a[i]), widen(b[i]))); });
}

template <typename T>
__device__ void swiglu_dx_element(T gate, T up, T dy, T& dgate, T& dup) {
  const float g = widen(gate);
  const float u = widen(up);
  const float d = widen(dy);
  const float s = sigmoid_for<T>(g);
  dgate = narrow<T>(d * u * s * (g * (1.0F - s) + 1.0F));
  dup = narrow<T>(d * (g * s));
}

template <typename T>
__global__ void swiglu_dx_all(const T* gate, const T* up, const T* dy, T* dgate, T* dup, std::int64_t count) {
  for_elements<T>(
      count,
      [&](std::int64_t i) {
        const Pack<T> g = reinterpret_cast<const Pack<T>*>(gate)[i];
        const Pack<T> u = reinterpret_cast<const Pack<T>*>(up)[i];
        const Pack<T> d = reinterpret_cast<const Pack<T>*>(dy)[i];
        Pack<T> of_gate;
        Pack<T> of_up;
#pragma unroll
        for (int k = 0; k < Pack<T>::size; ++k) {
          swiglu_dx_element<T>(g.of[k], u.of[k], d.of[k], of_gate.of[k], of_up.of[k]);
        }
        reinterpret_cast<Pack<T>*>(dgate)[i] = of_gate;
        reinterpret_cast<Pack<T>*>(dup)[i] = of_up;
      },
      [&](std::int64_t i) {
        T of_gate;
        T of_up;
        swiglu_dx_element<T>(gate[i], up[i], dy[i], of_gate, of_up);
        dgate[i] = of_gate;
        dup[i] = of_up;
      });
}

__global__ void round_all(const float* x, bf16_bits* y, std::int64_t count) {
  for_elements<float>(
      count,
      [&](std::int64_t i) {
        const Pack<float> pack = reinterpret_cast<const Pack<float>*>(x)[i];
        Group<bf16_bits, Pack<float>::size> made;
#pragma unroll
        for (int k = 0; k < made.size; ++k) made.of[k] = round_bf16(pack.of[k]);
        reinterpret_cast<Group<bf16_bits, Pack<float>::size>*>(y)[i] = made;
      },
      [&](std::int64_t i) { y[i] = round_bf16(x[i]); });
}

template <template <typename> typename F>
void run_one(Stream stream, Float type, const void* x, void* y, std::int64_t count) {
  if (type == Float::f32) {
    map_one<<<grid_for<float>(count), threads, 0, stream>>>(static_cast<const float*>(x), static_cast<float*>(y), count,
                                                            F<float>{});
  } else {
    map_one<<<grid_for<bf16_bits>(count), threads, 0, stream>>>(static_cast<const bf16_bits*>(x),
                                                                static_cast<bf16_bits*>(y), count, F<bf16_bits>{});
  }
}

template <template <typename> typename F>
void run_two(Stream stream, Float type, const void* a, const void* b, void* y, std::int64_t count) {
  if (type == Float::f32) {
    map_two<<<grid_for<float>(count), threads, 0, stream>>>(static_cast<const float*>(a), static_cast<const float*>(b),
                                                            static_cast<float*>(y), count, F<float>{});
  } else {
    map_two<<<grid_for<bf16_bits>(count), threads, 0, stream>>>(static_cast<const bf16_bits*>(a),
                                                                static_cast<const bf16_bits*>(b),
                                                                static_cast<bf16_bits*>(y), count, F<bf16_bits>{});
  }
}

template <typename T>
void run_swiglu_dx(Stream stream, const SwigluDx& of, std::int64_t count) {
  swiglu_dx_all<<<grid_for<T>(count), threads, 0, stream>>>(static_cast<const T*>(of.gate),
                                                            static_cast<const T*>(of.up), static_cast<const T*>(of.dy),
                                                            static_cast<T*>(of.dgate), static_cast<T*>(of.dup), count);
}

}  // namespace

void add(Stream stream, Float type, const void* a, const void* b, void* y, std::int64_t count) {
  run_two<Add>(stream, type, a, b, y, count);
}
void gelu(Stream stream, Float type, const void* x, void* y, std::int64_t count) {
  run_one<Gelu>(stream, type, x, y, count);
}
void gelu_dx(Stream stream, Float type, const void* x, const void* dy, void* dx, std::int64_t count) {
  run_two<GeluDx>(stream, type, x, dy, dx, count);
}
void swiglu(Stream stream, Float type, const void* gate, const void* up, void* y, std::int64_t count) {
  run_two<Swiglu>(stream, type, gate, up, y, count);
}
void swiglu_dx(Stream stream, Float type, const SwigluDx& of, std::int64_t count) {
  type == Float::f32 ? run_swiglu_dx<float>(stream, of, count) : run_swiglu_dx<bf16_bits>(stream, of, count);
}
void round_to_bf16(Stream stream, const float* x, std::uint16_t* y, std::int64_t count) {
  round_all<<<grid_for<float>(count), threads, 0, stream>>>(x, y, count);
}

}  // namespace spillway::cuda
