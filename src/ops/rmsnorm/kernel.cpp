#include "ops/rmsnorm/kernel.h"

#include "ops/strips.h"

namespace spillway::SPILLWAY_TARGET {
namespace {

template <typename T>
float inverse_root_mean_square(const T* x, std::int64_t width, float epsilon) {
  f32x16 squares{};
  for_strips(width, [&](std::int64_t i, auto strip) {
    const f32x16 v = strip.load(x + i);
    squares += v * v;
  });
  return 1.0F / __builtin_sqrtf(sum(squares) / static_cast<float>(width) + epsilon);
}

template <typename T>
void rmsnorm_all(const RmsnormGroups<T>& of) {
  for (std::int64_t g = 0; g < of.groups; ++g) {
    const T* x = of.x + g * of.width;
    T* y = of.y + g * of.width;
    const float rstd = inverse_root_mean_square(x, of.width, of.epsilon);
    of.rstd[g] = rstd;
    for_strips(of.width, [&](std::int64_t i, auto strip) {
      strip.store(y + i, strip.load(of.w + i) * (strip.load(x + i) * rstd));
    });
  }
}

// With n = x * rstd and h = dy * w: dx = rstd * (h - n * mean(h * n)), and the partial grows by dy * n.
template <typename T>
void rmsnorm_dx_group(const RmsnormDxBlock<T>& of, std::int64_t g) {
  const T* x = of.x + g * of.width;
  const T* dy = of.dy + g * of.width;
  T* dx = of.dx + g * of.width;
  const float rstd = of.rstd[g];
  f32x16 products{};
  for_strips(of.width, [&](std::int64_t i, auto strip) {
    const f32x16 scaled = strip.load(dy + i) * (strip.load(x + i) * rstd);
    products += scaled * strip.load(of.w + i);
    strip.store(of.partial + i, strip.load(of.partial + i) + scaled);
  });
  const float mean = sum(products) / static_cast<float>(of.width);
  for_strips(of.width, [&](std::int64_t i, auto strip) {
    const f32x16 n = strip.load(x + i) * rstd;
    strip.store(dx + i, (strip.load(dy + i) * strip.load(of.w + i) - n * mean) * rstd);
  });
}

template <typename T>
void rmsnorm_dx_all(const RmsnormDxBlock<T>& of) {
  for_strips(of.width, [&](std::int64_t i, auto strip) { strip.store(of.partial + i, f32x16{}); });
  for (std::int64_t g = 0; g < of.groups; ++g) rmsnorm_dx_group(of, g);
}

}  // namespace

void rmsnorm_groups(const RmsnormGroups<float>& of) { rmsnorm_all(of); }
void rmsnorm_groups(const RmsnormGroups<bf16_t>& of) { rmsnorm_all(of); }
void rmsnorm_dx_block(const RmsnormDxBlock<float>& of) { rmsnorm_dx_all(of); }
void rmsnorm_dx_block(const RmsnormDxBlock<bf16_t>& of) { rmsnorm_dx_all(of); }

}  // namespace spillway::SPILLWAY_TARGET
