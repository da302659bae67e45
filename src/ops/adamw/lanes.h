// What the updates with moments in f32 and in 8 bits have in common, sixteen elements at a time. Each stands alone and
// is rounded at every operation, so the lanes of a vector do not show in the bits.
//
// Use only inside kernel*.cpp, as ops/simd.h.
#pragma once

#include <cstdint>

#include "ops/adamw/adamw.h"
#include "ops/simd.h"

namespace spillway::SPILLWAY_TARGET {

// The masters, of which bf16 weights are the upper halves: the split of base/dtype.h, in integers only.
SPILLWAY_INLINE f32x16 load_master(const float* weight, const std::uint16_t*) { return load(weight); }
SPILLWAY_INLINE f32x16 load_master(const bf16_t* weight, const std::uint16_t* low) {
  return from_bits(bits(load(weight)) + sign_extended(load_as(low)));
}
SPILLWAY_INLINE void store_master(float* weight, std::uint16_t*, f32x16 master) { store(weight, master); }
SPILLWAY_INLINE void store_master(bf16_t* weight, std::uint16_t* low, f32x16 master) {
  store_as(weight, lower_halves((bits(master) + 0x8000U) >> 16));
  store_as(low, lower_halves(bits(master)));
}

// The moments after the clipped gradient g, and what becomes of the master p by them.
SPILLWAY_INLINE f32x16 next_m(f32x16 m, f32x16 g, const AdamwScalars& by) { return flushed(m * by.b1 + g * by.c1); }
SPILLWAY_INLINE f32x16 next_v(f32x16 v, f32x16 g, const AdamwScalars& by) {
  return flushed(v * by.b2 + (g * g) * by.c2);
}
SPILLWAY_INLINE f32x16 next_master(f32x16 p, f32x16 m, f32x16 v, const AdamwScalars& by) {
  return p * by.keep - (m / (sqrt(v) * by.r + by.eps)) * by.step;
}

}  // namespace spillway::SPILLWAY_TARGET
