// The update with moments in 8 bits: a block of 64 elements at a time, since its exponents are known only when all its
// moments are. Sixteen lanes at a time, the arithmetic of kernel.cpp.
#include <cstring>

#include "ops/adamw/kernel.h"
#include "ops/adamw/packed.h"
#include "ops/simd.h"

namespace spillway::SPILLWAY_TARGET {
namespace {

using u8x16 = std::uint8_t __attribute__((vector_size(16)));

constexpr std::uint32_t m_octaves = 16;
constexpr std::uint32_t v_octaves = 32;
constexpr std::int64_t vectors = packed_block / lanes;

SPILLWAY_INLINE u32x16 load_codes(const std::uint8_t* from) {
  u8x16 codes;
  std::memcpy(&codes, from, sizeof codes);
  return __builtin_convertvector(codes, u32x16);
}
SPILLWAY_INLINE void store_codes(std::uint8_t* to, u32x16 codes) {
  const u8x16 narrow = __builtin_convertvector(codes, u8x16);
  std::memcpy(to, &narrow, sizeof narrow);
}
// All ones where a < b, both below 2^31.
SPILLWAY_INLINE u32x16 where_less(u32x16 a, u32x16 b) { return 0U - ((a - b) >> 31); }
SPILLWAY_INLINE u32x16 where_zero(u32x16 a) { return 0U - ((a - 1U) >> 31); }
SPILLWAY_INLINE u32x16 select(u32x16 where, u32x16 yes, u32x16 no) { return (yes & where) | (no & ~where); }
SPILLWAY_INLINE u32x16 larger(u32x16 a, u32x16 b) { return select(where_less(a, b), b, a); }

SPILLWAY_INLINE u32x16 unpack(u32x16 codes, std::uint32_t base) { return ((codes + base) << 20) & ~where_zero(codes); }

SPILLWAY_INLINE f32x16 flush(f32x16 value) {
  const u32x16 small = where_less(bits(value) & 0x7fffffffU, u32x16{} + 0x00800000U);
  return from_bits(bits(value) & ~small);
}

SPILLWAY_INLINE u32x16 pack(u32x16 magnitude, std::uint32_t base, u32x16 noise, bool keep) {
  const u32x16 fraction = noise >> 12;
  const std::uint32_t smallest = (base + 1) << 20;
  const u32x16 rounded = ((magnitude + fraction) >> 20) - base;
  u32x16 below = ~where_zero(magnitude) & 1U;
  if (!keep) {
    // Signed, as it is below 2^20: AVX2 has no instruction for the other.
    const f32x16 threshold =
        __builtin_convertvector(reinterpret_cast<i32x16>(fraction), f32x16) * 0x1p-20F * from_bits(u32x16{} + smallest);
    below = where_negative(threshold - from_bits(magnitude)) & 1U;
  }
  return select(where_less(magnitude, u32x16{} + smallest), below, rounded);
}

SPILLWAY_INLINE std::uint32_t largest_of(u32x16 values) {
  std::uint32_t lane[lanes];
  std::memcpy(lane, &values, sizeof lane);
  std::uint32_t found = 0;
  for (const std::uint32_t value : lane) found = value > found ? value : found;
  return found;
}

// Master and gradient of sixteen elements, as f32.
SPILLWAY_INLINE f32x16 load_master(const float* weight, const std::uint16_t*) { return load(weight); }
SPILLWAY_INLINE f32x16 load_master(const bf16_t* weight, const std::uint16_t* low) {
  u16x16 hi;
  u16x16 lo;
  std::memcpy(&hi, weight, sizeof hi);
  std::memcpy(&lo, low, sizeof lo);
  const u32x16 wide = __builtin_convertvector(lo, u32x16);
  return from_bits((__builtin_convertvector(hi, u32x16) << 16) + ((wide ^ 0x8000U) - 0x8000U));
}
SPILLWAY_INLINE void store_master(float* weight, std::uint16_t*, f32x16 master) { store(weight, master); }
SPILLWAY_INLINE void store_master(bf16_t* weight, std::uint16_t* low, f32x16 master) {
  const u16x16 hi = __builtin_convertvector((bits(master) + 0x8000U) >> 16, u16x16);
  const u16x16 lo = __builtin_convertvector(bits(master) & 0xffffU, u16x16);
  std::memcpy(weight, &hi, sizeof hi);
  std::memcpy(low, &lo, sizeof lo);
}

template <typename T>
struct Block {
  T* weight;
  std::uint16_t* low;
  std::uint8_t* m;
  std::uint8_t* v;
  const T* grad;
  std::uint8_t* m_exponent;
  std::uint8_t* v_exponent;
};

template <typename T>
SPILLWAY_INLINE void update_block(const Block<T>& at, const AdamwScalars& by, float clip) {
  f32x16 m[vectors];
  f32x16 v[vectors];
  u32x16 noise[vectors];
  u32x16 largest_m{};
  u32x16 largest_v{};
  const auto step = static_cast<std::uint32_t>(by.noise);
  const std::uint32_t old_m = packed_base(*at.m_exponent, m_octaves);
  const std::uint32_t old_v = packed_base(*at.v_exponent, v_octaves);
  for (int i = 0; i < vectors; ++i) {
    const std::int64_t first = i * lanes;
    const u32x16 code = load_codes(at.m + first);
    const f32x16 g = load(at.grad + first) * clip;
    m[i] = flush(from_bits(unpack(code & 0x7fU, old_m) | (code & 0x80U) << 24) * by.b1 + g * by.c1);
    v[i] = flush(from_bits(unpack(load_codes(at.v + first), old_v)) * by.b2 + (g * g) * by.c2);
    const f32x16 old = load_master(at.weight + first, at.low + first);
    const f32x16 next = old * by.keep - (m[i] / (sqrt(v[i]) * by.r + by.eps)) * by.step;
    store_master(at.weight + first, at.low + first, next);
    u32x16 h = bits(next) ^ (bits(m[i]) * 0x9e3779b1U) ^ (bits(v[i]) * 0x85ebca77U) ^ step;
    h = (h ^ (h >> 15)) * 0x2c1b3c6dU;
    h = (h ^ (h >> 12)) * 0x297a2d39U;
    noise[i] = h ^ (h >> 15);
    largest_m = larger(largest_m, bits(m[i]) & 0x7fffffffU);
    largest_v = larger(largest_v, bits(v[i]));
  }
  const std::uint32_t m_exponent = packed_exponent(largest_of(largest_m), m_octaves);
  const std::uint32_t v_exponent = packed_exponent(largest_of(largest_v), v_octaves);
  const std::uint32_t new_m = packed_base(m_exponent, m_octaves);
  const std::uint32_t new_v = packed_base(v_exponent, v_octaves);
  for (int i = 0; i < vectors; ++i) {
    const std::int64_t first = i * lanes;
    const u32x16 sign = (bits(m[i]) >> 24) & 0x80U;
    store_codes(at.m + first, pack(bits(m[i]) & 0x7fffffffU, new_m, noise[i], false) | sign);
    const u32x16 h = noise[i] * 0x9e3779b1U;
    store_codes(at.v + first, pack(bits(v[i]), new_v, h ^ (h >> 16), true));
  }
  *at.m_exponent = static_cast<std::uint8_t>(m_exponent);
  *at.v_exponent = static_cast<std::uint8_t>(v_exponent);
}

// A block that ends early works on copies with zeros behind.
template <typename T>
void update_short_block(const Block<T>& at, std::int64_t count, const AdamwScalars& by, float clip) {
  T weight[packed_block] = {};
  T grad[packed_block] = {};
  std::uint16_t low[packed_block] = {};
  std::uint8_t m[packed_block] = {};
  std::uint8_t v[packed_block] = {};
  const auto size = static_cast<std::size_t>(count);
  constexpr bool split = sizeof(T) == sizeof(bf16_t);
  std::memcpy(weight, at.weight, size * sizeof(T));
  std::memcpy(grad, at.grad, size * sizeof(T));
  std::memcpy(m, at.m, size);
  std::memcpy(v, at.v, size);
  if (split) std::memcpy(low, at.low, size * sizeof(std::uint16_t));
  update_block<T>({weight, low, m, v, grad, at.m_exponent, at.v_exponent}, by, clip);
  std::memcpy(at.weight, weight, size * sizeof(T));
  std::memcpy(at.m, m, size);
  std::memcpy(at.v, v, size);
  if (split) std::memcpy(at.low, low, size * sizeof(std::uint16_t));
}

}  // namespace

template <typename T>
void adamw_chunk(const PackedAdamwStreams<T>& streams, const AdamwScalars& by, float clip) {
  const std::int64_t cols = streams.cols;
  const std::int64_t row_bytes = packed_row_bytes(cols);
  for (std::int64_t row = 0; row < streams.rows; ++row) {
    std::uint8_t* const m = streams.exp_avg + row * row_bytes;
    std::uint8_t* const v = streams.exp_avg_sq + row * row_bytes;
    for (std::int64_t c = 0; c < cols; c += packed_block) {
      const std::int64_t at = row * cols + c;
      const std::int64_t exponent = cols + c / packed_block;
      std::uint16_t* const low = streams.low == nullptr ? nullptr : streams.low + at;
      const Block<T> block{streams.weight + at, low, m + c, v + c, streams.grad + at, m + exponent, v + exponent};
      if (cols - c >= packed_block) {
        update_block(block, by, clip);
      } else {
        update_short_block(block, cols - c, by, clip);
      }
    }
  }
}

template void adamw_chunk(const PackedAdamwStreams<float>&, const AdamwScalars&, float);
template void adamw_chunk(const PackedAdamwStreams<bf16_t>&, const AdamwScalars&, float);

}  // namespace spillway::SPILLWAY_TARGET
