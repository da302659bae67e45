#include "session/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace spillway {

double Sampler::uniform() {  // splitmix64
  std::uint64_t z = state_ += 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

std::int64_t Sampler::next(std::span<const float> logits) {
  if (options_.temperature <= 0) return std::max_element(logits.begin(), logits.end()) - logits.begin();
  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), 0);
  const auto count = static_cast<std::int64_t>(logits.size());
  const std::int64_t kept = options_.top_k > 0 ? std::min(options_.top_k, count) : count;
  const auto more_likely = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)];
    const float y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::partial_sort(order_.begin(), order_.begin() + kept, order_.end(), more_likely);
  const double largest = logits[static_cast<std::size_t>(order_.front())];
  weights_.resize(static_cast<std::size_t>(kept));
  for (std::int64_t i = 0; i < kept; ++i) {
    const double logit = logits[static_cast<std::size_t>(order_[static_cast<std::size_t>(i)])];
    weights_[static_cast<std::size_t>(i)] = std::exp((logit - largest) / options_.temperature);
  }
  const double total = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  double nucleus = 0;
  std::size_t size = 0;
  while (size < weights_.size() && nucleus < options_.top_p * total) nucleus += weights_[size++];
  double at = uniform() * nucleus;
  for (std::size_t i = 0; i + 1 < size; ++i) {
    if (at < weights_[i]) return order_[i];
    at -= weights_[i];
  }
  return order_[std::max<std::size_t>(size, 1) - 1];
}

}  // namespace spillway
