#include "ops/gelu/kernel.h"

#include "ops/strips.h"

namespace spillway::SPILLWAY_TARGET {
namespace {

// gelu(x) = x * sigmoid(2 u) with u = sqrt(2 / pi) * (x + 0.044715 x^3), since (1 + tanh(u)) / 2 = sigmoid(2 u); unlike
// 1 + tanh(u) this keeps its digits for negative x.
constexpr float twice_root_two_over_pi = 1.59576912160573071176F;
constexpr float cubic = 0.044715F;

template <typename T>
void gelu_all(const T* x, T* y, std::int64_t count) {
  for_strips(count, [&](std::int64_t i, auto strip) {
    const f32x16 v = strip.load(x + i);
    strip.store(y + i, v * sigmoid((v * v * cubic + 1.0F) * v * twice_root_two_over_pi));
  });
}

template <typename T>
void gelu_dx_all(const T* x, const T* dy, T* dx, std::int64_t count) {
  for_strips(count, [&](std::int64_t i, auto strip) {
    const f32x16 v = strip.load(x + i);
    const f32x16 square = v * v;
    const f32x16 s = sigmoid((square * cubic + 1.0F) * v * twice_root_two_over_pi);
    const f32x16 slope = (square * (3.0F * cubic) + 1.0F) * twice_root_two_over_pi;
    strip.store(dx + i, strip.load(dy + i) * (s + v * s * (1.0F - s) * slope));
  });
}

}  // namespace

void gelu_elements(const float* x, float* y, std::int64_t count) { gelu_all(x, y, count); }
void gelu_elements(const bf16_t* x, bf16_t* y, std::int64_t count) { gelu_all(x, y, count); }
void gelu_dx_elements(const float* x, const float* dy, float* dx, std::int64_t count) { gelu_dx_all(x, dy, dx, count); }
void gelu_dx_elements(const bf16_t* x, const bf16_t* dy, bf16_t* dx, std::int64_t count) {
  gelu_dx_all(x, dy, dx, count);
}

}  // namespace spillway::SPILLWAY_TARGET
