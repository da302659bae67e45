// What attention over the cache computes for one query head, in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace spillway::reference {

// keys and values: the rows attended to, of q.size() columns each.
inline std::vector<double> attend(const std::vector<float>& q, const std::vector<std::vector<float>>& keys,
                                  const std::vector<std::vector<float>>& values) {
  std::vector<double> scores;
  for (const std::vector<float>& key : keys) {
    double dot = 0;
    for (std::size_t i = 0; i < q.size(); ++i) dot += static_cast<double>(q[i]) * key[i];
    scores.push_back(dot / std::sqrt(static_cast<double>(q.size())));
  }
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - largest);
  std::vector<double> out(q.size(), 0.0);
  for (std::size_t row = 0; row < keys.size(); ++row) {
    const double share = std::exp(scores[row] - largest) / sum;
    for (std::size_t i = 0; i < q.size(); ++i) out[i] += share * values[row][i];
  }
  return out;
}

}  // namespace spillway::reference
