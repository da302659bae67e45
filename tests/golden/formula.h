// Initial weights and token streams of the golden cases, the twin of formula.py: same bits from both, so that no binary
// file is stored. The formulas are written out at the top of formula.py. All functions are pure; the checks at the end
// hold values printed by formula.py, and fail the build if the twins part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace spillway::golden {

constexpr std::uint64_t golden_ratio_64 = 0x9E3779B97F4A7C15U;

// 64-bit FNV-1a.
constexpr std::uint64_t fnv1a64(std::string_view text) {
  std::uint64_t value = 0xCBF29CE484222325U;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  return value;
}

// One output of SplitMix64 whose state is x before the increment.
constexpr std::uint64_t splitmix64(std::uint64_t x) {
  std::uint64_t z = x + golden_ratio_64;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

constexpr std::uint64_t hash_at(std::uint64_t name_hash, std::int64_t index) {
  return splitmix64(name_hash ^ (static_cast<std::uint64_t>(index) * golden_ratio_64));
}

// What an element looks like follows from the tensor's name and its number of dimensions.
enum class Role : std::uint8_t { matrix, norm, bias };

constexpr Role role_of(std::string_view tensor, std::int64_t rank) {
  if (tensor.ends_with(".bias")) return Role::bias;
  return rank == 1 ? Role::norm : Role::matrix;
}

// Every value is exact in double before its rounding to float: the scales are powers of two.
constexpr float weight_from(Role role, std::uint64_t hash) {
  const double value = 2.0 * static_cast<double>(hash >> 40) * 0x1p-24 - 1.0;
  switch (role) {
    case Role::bias: return static_cast<float>(value / 16);
    case Role::norm: return static_cast<float>(1.0 + value / 8);
    case Role::matrix: break;
  }
  return static_cast<float>(value / 8);
}

// Element `index` (row-major) of the tensor with this name, as in the model file, and number of dimensions.
constexpr float weight_at(std::string_view tensor, std::int64_t rank, std::int64_t index) {
  return weight_from(role_of(tensor, rank), hash_at(fnv1a64(tensor), index));
}

// The whole tensor; `values` has as many elements as it.
constexpr void fill_weights(std::string_view tensor, std::int64_t rank, std::span<float> values) {
  const std::uint64_t name_hash = fnv1a64(tensor);
  const Role role = role_of(tensor, rank);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = weight_from(role, hash_at(name_hash, static_cast<std::int64_t>(i)));
  }
}

// Token `index` of the stream, in [0, vocab_size).
constexpr std::uint32_t token_at(std::int64_t index, std::int64_t vocab_size) {
  const auto i = static_cast<std::uint64_t>(index);
  const auto vocab = static_cast<std::uint64_t>(vocab_size);
  const std::uint64_t x = hash_at(fnv1a64("tokens"), index);
  const std::uint64_t token = x % 8 == 0 ? (x >> 8) % vocab : (31 * (i % 17) + 7 * (i % 5)) % vocab;
  return static_cast<std::uint32_t>(token);
}

static_assert(fnv1a64("model.norm.weight") == 0xD6D6E5AFD11604E4U);
static_assert(splitmix64(0) == 0xE220A8397B1DCDAFU);
static_assert(weight_at("model.embed_tokens.weight", 2, 0) == -0x1.0798e00000000p-5F);
static_assert(weight_at("model.embed_tokens.weight", 2, 16447) == -0x1.00b3340000000p-4F);
static_assert(weight_at("model.norm.weight", 1, 63) == 0x1.de52ca0000000p-1F);
static_assert(weight_at("model.layers.1.self_attn.k_proj.bias", 1, 17) == 0x1.3058d00000000p-6F);
static_assert(token_at(4, 257) == 152);
static_assert(token_at(7, 257) == 74);
static_assert(token_at(654, 257) == 52);

}  // namespace spillway::golden
