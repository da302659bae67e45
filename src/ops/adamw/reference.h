// What the update computes for one element, to the bit.
#pragma once

#include <cmath>

#include "ops/adamw/adamw.h"

namespace spillway::reference {

struct AdamwElement {
  float p;
  float m;
  float v;
};

inline AdamwElement adamw(AdamwElement at, float grad, float clip, const AdamwScalars& by) {
  constexpr float smallest_normal = 0x1p-126F;
  const float g = grad * clip;
  at.m = by.b1 * at.m + by.c1 * g;
  if (std::fabs(at.m) < smallest_normal) at.m = 0;
  at.v = by.b2 * at.v + by.c2 * (g * g);
  if (std::fabs(at.v) < smallest_normal) at.v = 0;
  at.p = at.p * by.keep - by.step * (at.m / (std::sqrt(at.v) * by.r + by.eps));
  return at;
}

}  // namespace spillway::reference
