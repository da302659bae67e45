#include "ops/rope/kernel.h"

#include "ops/strips.h"

namespace spillway::SPILLWAY_TARGET {
namespace {

struct Rotation {
  f32x16 cosine, sine;
};

// The angle less a multiple n of pi / 2, in double: n times the upper 33 bits of pi / 2 is exact below 2^20 quarter
// turns. What is left is within [-pi / 4, pi / 4], where short polynomials reach fp32.
SPILLWAY_INLINE Rotation rotation_of(f64x16 angle) {
  constexpr double shifter = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
  const f64x16 n = (angle * 0.63661977236758134308 + shifter) - shifter;
  const f64x16 rest = (angle - n * 1.57079632673412561417) - n * 6.07710050650619224932e-11;
  const f32x16 r = converted<float>(rest);
  const i32x16 quarter = converted<std::int32_t>(n);
  const f32x16 z = r * r;
  f32x16 s = splat(-1.9515295891e-4F);
  s = s * z + 8.3321608736e-3F;
  s = s * z - 1.6666654611e-1F;
  s = s * z * r + r;
  f32x16 c = splat(2.443315711809948e-5F);
  c = c * z - 1.388731625493765e-3F;
  c = c * z + 4.166664568298827e-2F;
  c = c * z * z - z * 0.5F + 1.0F;
  const auto where_odd = [](i32x16 value, f32x16 yes, f32x16 no) {
    return by_registers([](auto number, Register a, Register b) { return (number & 1) != 0 ? a : b; }, value, yes, no);
  };
  const f32x16 sine = where_odd(quarter, c, s);
  const f32x16 cosine = where_odd(quarter, s, c);
  return {where_odd((quarter + 1) >> 1, -cosine, cosine), where_odd(quarter >> 1, -sine, sine)};
}

template <typename T>
void fill_table(const RopeRows<T>& of, std::int64_t row) {
  const std::int64_t half = of.head_dim / 2;
  const auto position = static_cast<double>(of.positions[row]);
  for_strips(half, [&](std::int64_t i, auto strip) {
    const Rotation turn = rotation_of(extended(strip.load(of.frequencies + i)) * position);
    strip.store(of.table + i, turn.cosine);
    strip.store(of.table + half + i, of.inverse ? -turn.sine : turn.sine);
  });
}

template <typename T>
void rope_all(const RopeRows<T>& of) {
  const std::int64_t half = of.head_dim / 2;
  for (std::int64_t row = 0; row < of.rows; ++row) {
    fill_table(of, row);
    for (std::int64_t head = 0; head < of.heads; ++head) {
      const T* x = of.x + (row * of.heads + head) * of.head_dim;
      T* y = of.y + (row * of.heads + head) * of.head_dim;
      for_strips(half, [&](std::int64_t i, auto strip) {
        const f32x16 c = strip.load(of.table + i);
        const f32x16 s = strip.load(of.table + half + i);
        const f32x16 a = strip.load(x + i);
        const f32x16 b = strip.load(x + half + i);
        strip.store(y + i, a * c - b * s);
        strip.store(y + half + i, b * c + a * s);
      });
    }
  }
}

}  // namespace

void rope_rows(const RopeRows<float>& of) { rope_all(of); }
void rope_rows(const RopeRows<bf16_t>& of) { rope_all(of); }

}  // namespace spillway::SPILLWAY_TARGET
