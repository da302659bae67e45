// The update with moments in 8 bits: a block of 64 elements at a time, since its exponents are known only when all its
// moments are.
#include <cstring>

#include "ops/adamw/kernel.h"
#include "ops/adamw/lanes.h"
#include "ops/adamw/packed.h"

namespace spillway::SPILLWAY_TARGET {
namespace {

constexpr std::uint32_t m_octaves = 16;
constexpr std::uint32_t v_octaves = 32;
constexpr std::int64_t vectors = packed_block / lanes;

SPILLWAY_INLINE u32x16 load_codes(const std::uint8_t* from) { return converted<std::uint32_t>(load_as(from)); }
SPILLWAY_INLINE void store_codes(std::uint8_t* to, u32x16 codes) { store_as(to, converted<std::uint8_t>(codes)); }
// Of integers below 2^31, as signed ones: AVX2 has no instruction for others.
SPILLWAY_INLINE f32x16 number_of(u32x16 value) {
  return by_registers(
      [](RegisterBits part) { return __builtin_convertvector(reinterpret_cast<i32x16::Part>(part), Register); }, value);
}
// All ones where a < b, both below 2^31.
SPILLWAY_INLINE u32x16 where_less(u32x16 a, u32x16 b) { return 0U - ((a - b) >> 31); }
SPILLWAY_INLINE u32x16 where_zero(u32x16 a) { return 0U - ((a - 1U) >> 31); }
SPILLWAY_INLINE u32x16 select(u32x16 where, u32x16 yes, u32x16 no) { return (yes & where) | (no & ~where); }
SPILLWAY_INLINE u32x16 larger(u32x16 a, u32x16 b) { return select(where_less(a, b), b, a); }

SPILLWAY_INLINE u32x16 unpack(u32x16 codes, std::uint32_t base) { return ((codes + base) << 20) & ~where_zero(codes); }

SPILLWAY_INLINE u32x16 pack(u32x16 magnitude, std::uint32_t base, u32x16 noise, bool keep) {
  const u32x16 fraction = noise >> 12;
  const std::uint32_t smallest = (base + 1) << 20;
  const u32x16 rounded = ((magnitude + fraction) >> 20) - base;
  u32x16 below = ~where_zero(magnitude) & 1U;
  if (!keep) {
    const f32x16 threshold = number_of(fraction) * 0x1p-20F * from_bits(u32x16::all(smallest));
    below = where_negative(threshold - from_bits(magnitude)) & 1U;
  }
  return select(where_less(magnitude, u32x16::all(smallest)), below, rounded);
}

SPILLWAY_INLINE std::uint32_t largest_of(u32x16 values) {
  std::uint32_t lane[lanes];
  std::memcpy(lane, &values, sizeof lane);
  std::uint32_t found = 0;
  for (const std::uint32_t value : lane) found = value > found ? value : found;
  return found;
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
    m[i] = next_m(from_bits(unpack(code & 0x7fU, old_m) | (code & 0x80U) << 24), g, by);
    v[i] = next_v(from_bits(unpack(load_codes(at.v + first), old_v)), g, by);
    std::uint16_t* const low = sizeof(T) == sizeof(bf16_t) ? at.low + first : nullptr;
    const f32x16 next = next_master(load_master(at.weight + first, low), m[i], v[i], by);
    store_master(at.weight + first, low, next);
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
