#include <algorithm>
#include <bit>

#include "base/error.h"
#include "text/dataset.h"

namespace spillway {
namespace {

// The finaliser of splitmix64: every bit of the result depends on every bit of `x`.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

constexpr std::uint64_t feistel_rounds = 6;

// One pass through the network: a permutation of [0, 4^half_bits).
std::uint64_t feistel(std::uint64_t value, int half_bits, std::uint64_t key) {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t left = value >> half_bits;
  std::uint64_t right = value & mask;
  for (std::uint64_t round = 0; round < feistel_rounds; ++round) {
    const std::uint64_t next = left ^ (mixed(mixed(key + round) ^ right) & mask);
    left = right;
    right = next;
  }
  return (left << half_bits) | right;
}

}  // namespace

std::int64_t permuted(std::int64_t index, std::int64_t count, std::uint64_t key) {
  SPILLWAY_CHECK(index >= 0 && index < count, "{} of {}", index, count);
  const auto limit = static_cast<std::uint64_t>(count);
  const int half_bits = std::max(1, (static_cast<int>(std::bit_width(limit - 1)) + 1) / 2);
  auto value = static_cast<std::uint64_t>(index);
  // The network permutes at most 4 times as many values, so this takes 4 passes or fewer on average.
  do {
    value = feistel(value, half_bits, key);
  } while (value >= limit);
  return static_cast<std::int64_t>(value);
}

Windows::Windows(const TokenStore& store, std::int64_t max_seq_len, Order order)
    : store_(store), max_seq_len_(max_seq_len), order_(order) {
  SPILLWAY_CHECK(max_seq_len >= 1, "max_seq_len {}", max_seq_len);
  count_ = count_in(store.count(), max_seq_len);
  if (count_ >= 1) return;
  throw UserError("{}: {} tokens are too few, max_seq_len {} needs at least {}; {}", store.name(), store.count(),
                  max_seq_len, max_seq_len + 1,
                  store.count() < 2
                      ? std::string("give more text")
                      : fmt::format("give more text or set max_seq_len to {} or less", store.count() - 1));
}

std::int64_t Windows::index(std::int64_t global_sequence) const {
  SPILLWAY_CHECK(global_sequence >= 0, "sequence {}", global_sequence);
  const std::int64_t within = global_sequence % count_;
  if (!order_.shuffle) return within;
  const auto epoch = static_cast<std::uint64_t>(global_sequence / count_);
  return permuted(within, count_, mixed(mixed(order_.seed) + epoch));
}

void Windows::read(std::int64_t window, std::span<std::int32_t> ids, std::span<std::int32_t> targets) const {
  const auto length = static_cast<std::int64_t>(ids.size());
  SPILLWAY_CHECK(window >= 0 && window < count_, "window {} of {}", window, count_);
  SPILLWAY_CHECK(length == max_seq_len_ && targets.size() == ids.size(), "{} ids and {} targets for {}", length,
                 targets.size(), max_seq_len_);
  store_.read(window * length, ids);
  std::ranges::copy(ids.subspan(1), targets.begin());
  store_.read(window * length + length, targets.last(1));
}

}  // namespace spillway
