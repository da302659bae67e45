#include "ops/attention/softmax.h"
#include "ops/simd.h"

namespace spillway::SPILLWAY_TARGET {
namespace {

SPILLWAY_INLINE i32x16 lane_numbers() { return i32x16{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }

// x where the lane's column is at most `last`, otherwise `other`.
SPILLWAY_INLINE f32x16 up_to(std::int64_t first_column, std::int64_t last, f32x16 x, f32x16 other) {
  return lane_numbers() <= static_cast<std::int32_t>(last - first_column) ? x : other;
}

SPILLWAY_INLINE void store_term(float* to, f32x16 value, bool round_terms) {
  store(to, round_terms ? rounded_to_bf16(value) : value);
}
SPILLWAY_INLINE void store_term(bf16_t* to, f32x16 value, bool) { store(to, value); }

void find_largest(const SoftmaxBlock& block, const float* scores, float* largest_of_rows) {
  const f32x16 lowest = splat(-__builtin_inff());
  for (std::int64_t r = 0; r < block.size; ++r) {
    const float* const row = scores + r * block.size;
    f32x16 best = lowest;
    for (std::int64_t c = 0; c < block.size; c += lanes) {
      if (block.diagonal && c > r) break;
      const f32x16 x = load(row + c) * block.scale;
      best = max(best, block.diagonal ? up_to(c, r, x, lowest) : x);
    }
    const float found = largest(best);
    if (found > largest_of_rows[r]) largest_of_rows[r] = found;
  }
}

template <typename T>
void exponentials(const SoftmaxBlock& block, bool round_terms, const float* scores, const float* largest_of_rows,
                  T* terms, float* sums) {
  for (std::int64_t r = 0; r < block.size; ++r) {
    const float* const row = scores + r * block.size;
    T* const to = terms + r * block.size;
    f32x16 sum = load(sums + r * lanes);
    for (std::int64_t c = 0; c < block.size; c += lanes) {
      f32x16 term = splat(0.0F);
      if (!block.diagonal || c <= r) {
        term = exp_below_one(load(row + c) * block.scale - largest_of_rows[r]);
        if (block.diagonal) term = up_to(c, r, term, splat(0.0F));
        sum += term;
      }
      store_term(to + c, term, round_terms);
    }
    store(sums + r * lanes, sum);
  }
}

template <typename T>
void gradient(const SoftmaxBlock& block, bool round_terms, const float* scores, const float* dp, const float* lse,
              const float* delta, T* p, T* ds) {
  for (std::int64_t key = 0; key < block.size; ++key) {
    const std::int64_t row = key * block.size;
    for (std::int64_t c = 0; c < block.size; c += lanes) {
      f32x16 probability = splat(0.0F);
      f32x16 score_gradient = splat(0.0F);
      if (!block.diagonal || c + lanes > key) {
        probability = exp_below_one(load(scores + row + c) * block.scale - load(lse + c));
        score_gradient = probability * (load(dp + row + c) - load(delta + c)) * block.scale;
        if (block.diagonal) {
          const f32x16 zero = splat(0.0F);
          probability = up_to(c, key - 1, zero, probability);
          score_gradient = up_to(c, key - 1, zero, score_gradient);
        }
      }
      store_term(p + row + c, probability, round_terms);
      store_term(ds + row + c, score_gradient, round_terms);
    }
  }
}

template <typename T>
float dot(const T* a, const T* b, std::int64_t count) {
  f32x16 products = splat(0.0F);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) products += load(a + i) * load(b + i);
  if (i < count) products += load_first(a + i, count - i) * load_first(b + i, count - i);
  return sum(products);
}

float total(const float* partial_sums) { return sum(load(partial_sums)); }

template <typename T>
void divide(const float* row, float divisor, std::int64_t count, T* to) {
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) store(to + i, load(row + i) / divisor);
  if (i < count) store_first(to + i, load_first(row + i, count - i) / divisor, count - i);
}

template <typename T>
AttentionKernels<T> attention_kernels_for() {
  return {&find_largest, &exponentials<T>, &gradient<T>, &total};
}

}  // namespace

AttentionKernels<float> attention_kernels_f32() { return attention_kernels_for<float>(); }
AttentionKernels<bf16_t> attention_kernels_bf16() { return attention_kernels_for<bf16_t>(); }
RowKernels<float> row_kernels_f32() { return {&dot<float>, &divide<float>}; }
RowKernels<bf16_t> row_kernels_bf16() { return {&dot<bf16_t>, &divide<bf16_t>}; }

}  // namespace spillway::SPILLWAY_TARGET
