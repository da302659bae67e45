#include "ops/kv_cache/kernel.h"

#include "ops/simd.h"

namespace spillway::SPILLWAY_TARGET {
namespace {

template <typename T>
SPILLWAY_INLINE f32x16 load_upto(const T* from, std::int64_t count) {
  return count >= lanes ? load(from) : load_first(from, count);
}

template <typename T>
SPILLWAY_INLINE float dot_with_key(const float* query, const T* key, std::int64_t count) {
  f32x16 total = {};
  for (std::int64_t i = 0; i < count; i += lanes) total += load(query + i) * load_upto(key + i, count - i);
  return sum(total);
}

template <typename T>
SPILLWAY_INLINE void score(const CachedHead<T>& head) {
  for (std::int64_t i = 0; i < head.head_dim; i += lanes) {
    store(head.query + i, load_upto(head.q + i, head.head_dim - i) * head.scale);
  }
  for (std::int64_t row = 0; row < head.rows; ++row) {
    head.scores[row] = dot_with_key(head.query, head.keys + row * head.row_stride, head.head_dim);
  }
  for (std::int64_t row = head.rows; row % lanes != 0; ++row) head.scores[row] = -__builtin_inff();
}

// Scores become exp(score - largest); returns their sum.
SPILLWAY_INLINE float exponentiate(float* scores, std::int64_t rows) {
  f32x16 most = splat(-__builtin_inff());
  for (std::int64_t i = 0; i < rows; i += lanes) most = max(most, load(scores + i));
  const float top = largest(most);
  f32x16 total = {};
  for (std::int64_t i = 0; i < rows; i += lanes) {
    const f32x16 e = exp_below_one(load(scores + i) - top);
    store(scores + i, e);
    total += e;
  }
  return sum(total);
}

}  // namespace

template <typename T>
void attend_cached(T* out, const CachedHead<T>& head) {
  score(head);
  const float total = exponentiate(head.scores, head.rows);
  for (std::int64_t i = 0; i < head.head_dim; i += lanes) store(head.average + i, f32x16{});
  for (std::int64_t row = 0; row < head.rows; ++row) {
    const T* value = head.values + row * head.row_stride;
    for (std::int64_t i = 0; i < head.head_dim; i += lanes) {
      const f32x16 part = load_upto(value + i, head.head_dim - i) * head.scores[row];
      store(head.average + i, load(head.average + i) + part);
    }
  }
  for (std::int64_t i = 0; i < head.head_dim; i += lanes) {
    const f32x16 result = load(head.average + i) / total;
    if (head.head_dim - i >= lanes) {
      store(out + i, result);
    } else {
      store_first(out + i, result, head.head_dim - i);
    }
  }
}

template void attend_cached(float*, const CachedHead<float>&);
template void attend_cached(bf16_t*, const CachedHead<bf16_t>&);

}  // namespace spillway::SPILLWAY_TARGET
