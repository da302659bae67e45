#include "ops/reduce/kernel.h"

#include "ops/strips.h"

namespace spillway::SPILLWAY_TARGET {
namespace {

// Four strips at once keep the adders busy; each column's own order does not change.
constexpr std::int64_t strips_at_once = 4;

template <typename T>
void sum_wide(const ColumnSums<T>& of, std::int64_t col) {
  f32x16 total[strips_at_once] = {};
  for (std::int64_t r = 0; r < of.rows; ++r) {
    const T* row = of.x + r * of.stride + col;
    for (std::int64_t s = 0; s < strips_at_once; ++s) total[s] += load(row + s * lanes);
  }
  for (std::int64_t s = 0; s < strips_at_once; ++s) store(of.sums + col + s * lanes, total[s]);
}

template <typename T>
void sum_all(const ColumnSums<T>& of) {
  std::int64_t col = 0;
  for (; col + strips_at_once * lanes <= of.cols; col += strips_at_once * lanes) sum_wide(of, col);
  for_strips(of.cols - col, [&](std::int64_t i, auto strip) {
    f32x16 total{};
    for (std::int64_t r = 0; r < of.rows; ++r) total += strip.load(of.x + r * of.stride + col + i);
    strip.store(of.sums + col + i, total);
  });
}

}  // namespace

void sum_columns(const ColumnSums<float>& of) { sum_all(of); }
void sum_columns(const ColumnSums<bf16_t>& of) { sum_all(of); }

void sum_partials(const AddPartials& of) {
  const float* first = of.accumulator != nullptr ? of.accumulator : of.partials;
  const std::int64_t begin = of.accumulator != nullptr ? 0 : 1;
  for_strips(of.cols, [&](std::int64_t i, auto strip) {
    f32x16 total = strip.load(first + i);
    for (std::int64_t n = begin; n < of.count; ++n) total += strip.load(of.partials + n * of.stride + i);
    strip.store(of.sums + i, total);
  });
}

}  // namespace spillway::SPILLWAY_TARGET
