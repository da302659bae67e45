// What cross-entropy computes for one token, in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace spillway::reference {

struct TokenLoss {
  double loss = 0;
  std::vector<double> dlogits;
};

inline TokenLoss cross_entropy(const std::vector<float>& logits, std::int32_t target, double scale) {
  TokenLoss out{0, std::vector<double>(logits.size(), 0.0)};
  if (target < 0) return out;
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  out.loss = std::log(sum) + largest - logits[static_cast<std::size_t>(target)];
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double onehot = i == static_cast<std::size_t>(target) ? 1 : 0;
    out.dlogits[i] = (std::exp(logits[i] - largest) / sum - onehot) * scale;
  }
  return out;
}

}  // namespace spillway::reference
