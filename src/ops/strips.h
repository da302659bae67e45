// Rows in strips of sixteen lanes, the last one perhaps shorter. Use only inside kernel*.cpp.
#pragma once

#include "ops/simd.h"

namespace spillway::SPILLWAY_TARGET {

struct WholeStrip {
  SPILLWAY_INLINE f32x16 all(float value) const { return splat(value); }
  template <typename T>
  SPILLWAY_INLINE f32x16 load(const T* from) const {
    return SPILLWAY_TARGET::load(from);
  }
  template <typename T>
  SPILLWAY_INLINE void store(T* to, f32x16 value) const {
    SPILLWAY_TARGET::store(to, value);
  }
};

// The lanes beyond `count` load as zero and are not stored.
struct ShortStrip {
  std::int64_t count;
  // The value in the lanes that exist, zero beyond, so that a difference with loaded lanes is zero there.
  SPILLWAY_INLINE f32x16 all(float value) const {
    float padded[lanes] = {};
    for (std::int64_t i = 0; i < count; ++i) padded[i] = value;
    return SPILLWAY_TARGET::load(padded);
  }
  template <typename T>
  SPILLWAY_INLINE f32x16 load(const T* from) const {
    return load_first(from, count);
  }
  template <typename T>
  SPILLWAY_INLINE void store(T* to, f32x16 value) const {
    store_first(to, value, count);
  }
};

// Calls body(i, strip) for i = 0, 16, … below count.
template <typename Body>
SPILLWAY_INLINE void for_strips(std::int64_t count, const Body& body) {
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) body(i, WholeStrip{});
  if (i < count) body(i, ShortStrip{count - i});
}

}  // namespace spillway::SPILLWAY_TARGET
