#include "ops/attention/reference.h"

#include <algorithm>
#include <cmath>

#include "base/dtype.h"

namespace spillway {
namespace {

using Matrix = AttentionReference::Matrix;

double rounded(double value, bool round) {
  return round ? static_cast<double>(widen(round_bf16(static_cast<float>(value)))) : value;
}

// Where the rows of one query head, or of its key/value head, begin.
struct Places {
  const AttentionShape& shape;
  std::int64_t sequence = 0;
  std::int64_t head = 0;

  std::size_t q(std::int64_t token) const { return at(token, shape.heads, head); }
  std::size_t kv(std::int64_t token) const { return at(token, shape.kv_heads, head / (shape.heads / shape.kv_heads)); }
  std::size_t lse(std::int64_t token) const { return q(token) / static_cast<std::size_t>(shape.head_dim); }
  std::size_t at(std::int64_t token, std::int64_t heads, std::int64_t of) const {
    return static_cast<std::size_t>(((sequence * shape.sequence_length + token) * heads + of) * shape.head_dim);
  }
};

double dot(const Matrix& a, std::size_t i, const Matrix& b, std::size_t j, std::int64_t count) {
  double sum = 0;
  for (std::size_t n = 0; n < static_cast<std::size_t>(count); ++n) sum += a[i + n] * b[j + n];
  return sum;
}

void add_scaled(Matrix& to, std::size_t i, double scale, const Matrix& from, std::size_t j, std::int64_t count) {
  for (std::size_t n = 0; n < static_cast<std::size_t>(count); ++n) to[i + n] += scale * from[j + n];
}

template <typename Visit>
void for_each_query(const AttentionReference& op, Visit&& visit) {
  for (std::int64_t sequence = 0; sequence < op.sequences; ++sequence) {
    for (std::int64_t head = 0; head < op.shape.heads; ++head) {
      for (std::int64_t t = 0; t < op.shape.sequence_length; ++t) visit(Places{op.shape, sequence, head}, t);
    }
  }
}

}  // namespace

AttentionReference::Forward AttentionReference::forward(const Matrix& q, const Matrix& k, const Matrix& v) const {
  const std::int64_t d = shape.head_dim;
  const double scale = 1.0 / std::sqrt(static_cast<double>(d));
  Forward made{.o = Matrix(q.size()), .lse = Matrix(q.size() / static_cast<std::size_t>(d))};
  for_each_query(*this, [&](const Places& places, std::int64_t t) {
    Matrix scores;
    for (std::int64_t s = 0; s <= t; ++s) scores.push_back(scale * dot(q, places.q(t), k, places.kv(s), d));
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (const double score : scores) sum += std::exp(score - largest);
    for (std::int64_t s = 0; s <= t; ++s) {
      const double term = rounded(std::exp(scores[static_cast<std::size_t>(s)] - largest), round_terms);
      add_scaled(made.o, places.q(t), term / sum, v, places.kv(s), d);
    }
    made.lse[places.lse(t)] = largest + std::log(sum);
  });
  return made;
}

AttentionReference::Gradients AttentionReference::backward(const Matrix& q, const Matrix& k, const Matrix& v,
                                                           const Forward& made, const Matrix& d_o) const {
  const std::int64_t d = shape.head_dim;
  const double scale = 1.0 / std::sqrt(static_cast<double>(d));
  Gradients gradients{.dq = Matrix(q.size()), .dk = Matrix(k.size()), .dv = Matrix(v.size())};
  for_each_query(*this, [&](const Places& places, std::int64_t t) {
    const double delta = dot(d_o, places.q(t), made.o, places.q(t), d);
    for (std::int64_t s = 0; s <= t; ++s) {
      const double p = std::exp(scale * dot(q, places.q(t), k, places.kv(s), d) - made.lse[places.lse(t)]);
      const double dp = dot(d_o, places.q(t), v, places.kv(s), d);
      const double ds = rounded(p * (dp - delta) * scale, round_terms);
      add_scaled(gradients.dv, places.kv(s), rounded(p, round_terms), d_o, places.q(t), d);
      add_scaled(gradients.dk, places.kv(s), ds, q, places.q(t), d);
      add_scaled(gradients.dq, places.q(t), ds, k, places.kv(s), d);
    }
  });
  return gradients;
}

}  // namespace spillway
