#include "ops/layernorm/kernel.h"

#include "ops/strips.h"

namespace spillway::SPILLWAY_TARGET {
namespace {

template <typename T>
float mean_of(const T* x, std::int64_t cols) {
  f32x16 total{};
  for_strips(cols, [&](std::int64_t i, auto strip) { total += strip.load(x + i); });
  return sum(total) / static_cast<float>(cols);
}

// The deviations are summed in a second pass: the mean of squares less the squared mean would cancel.
template <typename T>
float inverse_deviation(const T* x, std::int64_t cols, float mean, float epsilon) {
  f32x16 squares{};
  for_strips(cols, [&](std::int64_t i, auto strip) {
    const f32x16 deviation = strip.load(x + i) - strip.all(mean);
    squares += deviation * deviation;
  });
  return 1.0F / __builtin_sqrtf(sum(squares) / static_cast<float>(cols) + epsilon);
}

template <typename T>
void layernorm_all(const LayernormRows<T>& of) {
  for (std::int64_t r = 0; r < of.rows; ++r) {
    const T* x = of.x + r * of.cols;
    T* y = of.y + r * of.cols;
    const float mean = mean_of(x, of.cols);
    const float rstd = inverse_deviation(x, of.cols, mean, of.epsilon);
    of.mean[r] = mean;
    of.rstd[r] = rstd;
    for_strips(of.cols, [&](std::int64_t i, auto strip) {
      strip.store(y + i, (strip.load(x + i) - mean) * rstd * strip.load(of.w + i) + strip.load(of.b + i));
    });
  }
}

// With n = (x - mean) * rstd and h = dy * w: dx = rstd * (h - mean(h) - n * mean(h * n)); the partials grow by dy * n
// and dy.
template <typename T>
void layernorm_dx_row(const LayernormDxBlock<T>& of, std::int64_t r) {
  const T* x = of.x + r * of.cols;
  const T* dy = of.dy + r * of.cols;
  T* dx = of.dx + r * of.cols;
  const float mean = of.mean[r];
  const float rstd = of.rstd[r];
  f32x16 plain{};
  f32x16 products{};
  for_strips(of.cols, [&](std::int64_t i, auto strip) {
    const f32x16 g = strip.load(dy + i);
    const f32x16 n = (strip.load(x + i) - mean) * rstd;
    const f32x16 h = g * strip.load(of.w + i);
    plain += h;
    products += h * n;
    strip.store(of.partial_w + i, strip.load(of.partial_w + i) + g * n);
    strip.store(of.partial_b + i, strip.load(of.partial_b + i) + g);
  });
  const float mean_h = sum(plain) / static_cast<float>(of.cols);
  const float mean_hn = sum(products) / static_cast<float>(of.cols);
  for_strips(of.cols, [&](std::int64_t i, auto strip) {
    const f32x16 n = (strip.load(x + i) - mean) * rstd;
    const f32x16 h = strip.load(dy + i) * strip.load(of.w + i);
    strip.store(dx + i, (h - mean_h - n * mean_hn) * rstd);
  });
}

template <typename T>
void layernorm_dx_all(const LayernormDxBlock<T>& of) {
  for_strips(of.cols, [&](std::int64_t i, auto strip) {
    strip.store(of.partial_w + i, f32x16{});
    strip.store(of.partial_b + i, f32x16{});
  });
  for (std::int64_t r = 0; r < of.rows; ++r) layernorm_dx_row(of, r);
}

}  // namespace

void layernorm_rows(const LayernormRows<float>& of) { layernorm_all(of); }
void layernorm_rows(const LayernormRows<bf16_t>& of) { layernorm_all(of); }
void layernorm_dx_block(const LayernormDxBlock<float>& of) { layernorm_dx_all(of); }
void layernorm_dx_block(const LayernormDxBlock<bf16_t>& of) { layernorm_dx_all(of); }

}  // namespace spillway::SPILLWAY_TARGET
