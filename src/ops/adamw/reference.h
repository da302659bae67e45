// What the update computes for one element, to the bit.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "ops/adamw/adamw.h"
#include "ops/adamw/packed.h"

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

// One row with moments in 8 bits: `codes` are packed rows, changed in place as p is.
inline void packed_adamw(std::vector<float>& p, std::vector<std::uint8_t>& m_row, std::vector<std::uint8_t>& v_row,
                         const std::vector<float>& grad, float clip, const AdamwScalars& by) {
  const auto cols = static_cast<std::int64_t>(p.size());
  for (std::int64_t first = 0; first < cols; first += packed_block) {
    const std::int64_t end = std::min(cols, first + packed_block);
    std::uint8_t& m_exponent = m_row[static_cast<std::size_t>(cols + first / packed_block)];
    std::uint8_t& v_exponent = v_row[static_cast<std::size_t>(cols + first / packed_block)];
    std::vector<AdamwElement> elements;
    std::uint32_t largest_m = 0;
    std::uint32_t largest_v = 0;
    for (std::int64_t c = first; c < end; ++c) {
      const auto i = static_cast<std::size_t>(c);
      const float magnitude = unpacked(m_row[i] & 0x7fU, packed_base(m_exponent, 16));
      elements.push_back(adamw(
          {p[i], (m_row[i] & 0x80U) != 0 ? -magnitude : magnitude, unpacked(v_row[i], packed_base(v_exponent, 32))},
          grad[i], clip, by));
      largest_m = std::max(largest_m, std::bit_cast<std::uint32_t>(std::fabs(elements.back().m)));
      largest_v = std::max(largest_v, std::bit_cast<std::uint32_t>(elements.back().v));
    }
    m_exponent = static_cast<std::uint8_t>(packed_exponent(largest_m, 16));
    v_exponent = static_cast<std::uint8_t>(packed_exponent(largest_v, 32));
    for (std::int64_t c = first; c < end; ++c) {
      const auto i = static_cast<std::size_t>(c);
      const AdamwElement& element = elements[static_cast<std::size_t>(c - first)];
      const auto m = std::bit_cast<std::uint32_t>(element.m);
      const auto v = std::bit_cast<std::uint32_t>(element.v);
      const std::uint32_t noise =
          packed_noise(std::bit_cast<std::uint32_t>(element.p), m, v, static_cast<std::uint32_t>(by.noise));
      p[i] = element.p;
      m_row[i] = static_cast<std::uint8_t>(packed_code(m & 0x7fffffffU, packed_base(m_exponent, 16), noise, false) |
                                           ((m >> 24) & 0x80U));
      v_row[i] =
          static_cast<std::uint8_t>(packed_code(v, packed_base(v_exponent, 32), packed_noise_of_sq(noise), true));
    }
  }
}

}  // namespace spillway::reference
