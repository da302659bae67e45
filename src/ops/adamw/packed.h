// Moments in 8 bits an element. A row of `cols` elements is `cols` codes, then one exponent for each block of 64 of
// them (the last perhaps shorter), then zeros up to whole cache lines. With the block's exponent e, in the terms of an
// f32's bits:
//   exp_avg     sign and 7 bits: 4 of exponent, from e - 15 to e, 3 of mantissa
//   exp_avg_sq  8 bits: 5 of exponent, from e - 31 to e, 3 of mantissa
// Code 0 (after the sign) is zero. e is the exponent of the block's largest element, so block-wise as in Dettmers et
// al., "8-bit Optimizers via Block-wise Quantization" (arXiv 2110.02861), but a power of two: codes that stay are exact
// when e changes.
//
// Rounding is stochastic: up with the probability of the part cut off, so that what a step adds is kept in the mean
// however small it is (to nearest, exp_avg_sq would never decay: 0.999 of it rounds back). The noise is a hash of the
// element's new master and moments and of the step, hence the same bits however state is cut and placed. A positive
// exp_avg_sq below the smallest code becomes that code, never zero: too large a divisor is safe, none is not.
#pragma once

#include <bit>
#include <cstdint>

#include "ops/adamw/adamw.h"

namespace spillway {

// 32 random bits of an element; those of exp_avg_sq follow from them.
constexpr std::uint32_t packed_noise(std::uint32_t master, std::uint32_t m, std::uint32_t v, std::uint32_t step) {
  std::uint32_t h = master ^ (m * 0x9e3779b1U) ^ (v * 0x85ebca77U) ^ step;
  h = (h ^ (h >> 15)) * 0x2c1b3c6dU;
  h = (h ^ (h >> 12)) * 0x297a2d39U;
  return h ^ (h >> 15);
}
constexpr std::uint32_t packed_noise_of_sq(std::uint32_t noise) {
  const std::uint32_t h = noise * 0x9e3779b1U;
  return h ^ (h >> 16);
}

// One element beside its block's exponent. `octaves` is 16 for exp_avg (without its sign), 32 for exp_avg_sq.
constexpr std::uint32_t packed_base(std::uint32_t exponent, std::uint32_t octaves) {
  return (exponent - (octaves - 1)) << 3;
}
constexpr float unpacked(std::uint32_t code, std::uint32_t base) {
  return code == 0 ? 0.0F : std::bit_cast<float>((code + base) << 20);
}
// The exponent that the largest magnitude of a block asks for, whatever is rounded up in it.
constexpr std::uint32_t packed_exponent(std::uint32_t largest_bits, std::uint32_t octaves) {
  const std::uint32_t exponent = (largest_bits + 0xfffffU) >> 23;
  return exponent < octaves ? octaves : exponent;
}
// Of a magnitude's bits; `keep` gives the smallest code to what is below it.
constexpr std::uint32_t packed_code(std::uint32_t bits, std::uint32_t base, std::uint32_t noise, bool keep) {
  const std::uint32_t smallest = (base + 1) << 20;
  if (bits >= smallest) return ((bits + (noise >> 12)) >> 20) - base;
  if (bits == 0) return 0;
  if (keep) return 1;
  const float share = static_cast<float>(noise >> 12) * 0x1p-20F;
  return std::bit_cast<float>(bits) > share * std::bit_cast<float>(smallest) ? 1 : 0;
}

}  // namespace spillway
