#include "ops/swiglu/kernel.h"

#include "ops/strips.h"

namespace spillway::SPILLWAY_TARGET {
namespace {

template <typename T>
void swiglu_all(const T* gate, const T* up, T* y, std::int64_t count) {
  for_strips(count, [&](std::int64_t i, auto strip) {
    const f32x16 g = strip.load(gate + i);
    strip.store(y + i, g * sigmoid(g) * strip.load(up + i));
  });
}

template <typename T>
void swiglu_dx_all(const SwigluDx<T>& of) {
  for_strips(of.count, [&](std::int64_t i, auto strip) {
    const f32x16 g = strip.load(of.gate + i);
    const f32x16 u = strip.load(of.up + i);
    const f32x16 dy = strip.load(of.dy + i);
    const f32x16 s = sigmoid(g);
    strip.store(of.dgate + i, dy * u * s * (g * (1.0F - s) + 1.0F));
    strip.store(of.dup + i, dy * (g * s));
  });
}

}  // namespace

void swiglu_elements(const float* gate, const float* up, float* y, std::int64_t count) {
  swiglu_all(gate, up, y, count);
}
void swiglu_elements(const bf16_t* gate, const bf16_t* up, bf16_t* y, std::int64_t count) {
  swiglu_all(gate, up, y, count);
}
void swiglu_dx_elements(const SwigluDx<float>& of) { swiglu_dx_all(of); }
void swiglu_dx_elements(const SwigluDx<bf16_t>& of) { swiglu_dx_all(of); }

}  // namespace spillway::SPILLWAY_TARGET
