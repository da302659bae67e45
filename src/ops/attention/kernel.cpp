#include "ops/attention/softmax.h"
#include "ops/simd.h"

namespace spillway::SPILLWAY_TARGET {
namespace {

constexpr std::int32_t lane_numbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// x where the lane's column is at most `last`, otherwise `other`.
SPILLWAY_INLINE f32x16 up_to(std::int64_t first_column, std::int64_t last, f32x16 x, f32x16 other) {
  const auto lane = static_cast<std::int32_t>(last - first_column);
  return by_registers([lane](auto number, Register yes, Register no) { return number <= lane ? yes : no; },
                      load_as(lane_numbers), x, other);
}

template <typename T>
SPILLWAY_INLINE f32x16 term_of(f32x16 value, bool round_terms) {
  return sizeof(T) == sizeof(float) && round_terms ? rounded_to_bf16(value) : value;
}

void find_largest(const SoftmaxBlock& block, const float* scores, float* largest) {
  const f32x16 lowest = splat(-__builtin_inff());
  for (std::int64_t r = 0; r < block.size; ++r) {
    const float* const row = scores + r * block.size;
    const std::int64_t end = block.diagonal ? r + 1 : block.size;
    f32x16 best = load(largest + r * lanes);
    std::int64_t c = 0;
    for (; c + lanes <= end; c += lanes) best = max(best, load(row + c));
    if (c < end) best = max(best, up_to(c, r, load(row + c), lowest));
    store(largest + r * lanes, best);
  }
}

template <typename T>
void exponentials(const SoftmaxBlock& block, bool round_terms, const float* scores, const float* offsets, T* terms,
                  float* sums) {
  const f32x16 factor = splat(block.factor);
  const f32x16 zero = splat(0.0F);
  for (std::int64_t r = 0; r < block.size; ++r) {
    const float* const row = scores + r * block.size;
    T* const to = terms + r * block.size;
    const f32x16 offset = splat(offsets[r]);
    const std::int64_t end = block.diagonal ? r + 1 : block.size;
    f32x16 sum = load(sums + r * lanes);
    std::int64_t c = 0;
    for (; c + 2 * lanes <= end; c += 2 * lanes) {
      const f32x16 first = exp2_of_difference(load(row + c), offset, factor);
      const f32x16 second = exp2_of_difference(load(row + c + lanes), offset, factor);
      sum += first;
      sum += second;
      store(to + c, term_of<T>(first, round_terms), term_of<T>(second, round_terms));
    }
    for (; c < end; c += lanes) {
      const f32x16 term = up_to(c, end - 1, exp2_of_difference(load(row + c), offset, factor), zero);
      sum += term;
      store(to + c, term_of<T>(term, round_terms));
    }
    for (; c < block.size; c += lanes) store(to + c, zero);
    store(sums + r * lanes, sum);
  }
}

// Of sixteen queries and a key.
struct GradientTerms {
  f32x16 probability, score_gradient;
};

SPILLWAY_INLINE GradientTerms gradient_terms(const SoftmaxBlock& block, const float* score, const float* dp,
                                             const float* offset, const float* delta) {
  const f32x16 probability = exp2_of_difference(load(score), load(offset), splat(block.factor));
  return {probability, probability * (load(dp) - load(delta)) * block.scale};
}

template <typename T>
void gradient(const SoftmaxBlock& block, bool round_terms, const float* scores, const float* dp, const float* offsets,
              const float* delta, T* p, T* ds) {
  const f32x16 zero = splat(0.0F);
  for (std::int64_t key = 0; key < block.size; ++key) {
    const std::int64_t row = key * block.size;
    const auto terms_at = [&](std::int64_t c) {
      return gradient_terms(block, scores + row + c, dp + row + c, offsets + c, delta + c);
    };
    const auto store_one = [&](std::int64_t c, const GradientTerms& terms) {
      store(p + row + c, term_of<T>(terms.probability, round_terms));
      store(ds + row + c, term_of<T>(terms.score_gradient, round_terms));
    };
    std::int64_t c = 0;
    if (block.diagonal) {
      for (; c + lanes <= key; c += lanes) store_one(c, {zero, zero});
      const GradientTerms terms = terms_at(c);
      store_one(c, {up_to(c, key - 1, zero, terms.probability), up_to(c, key - 1, zero, terms.score_gradient)});
      c += lanes;
    }
    for (; c + 2 * lanes <= block.size; c += 2 * lanes) {
      const GradientTerms first = terms_at(c);
      const GradientTerms second = terms_at(c + lanes);
      store(p + row + c, term_of<T>(first.probability, round_terms), term_of<T>(second.probability, round_terms));
      store(ds + row + c, term_of<T>(first.score_gradient, round_terms),
            term_of<T>(second.score_gradient, round_terms));
    }
    if (c < block.size) store_one(c, terms_at(c));
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
float largest_of(const float* partial) { return largest(load(partial)); }

template <typename T>
void scaled(const float* row, float factor, std::int64_t count, T* to) {
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) store(to + i, load(row + i) * factor);
  if (i < count) store_first(to + i, load_first(row + i, count - i) * factor, count - i);
}

template <typename T>
AttentionKernels<T> attention_kernels_for() {
  return {&find_largest, &exponentials<T>, &gradient<T>, &largest_of, &total};
}

}  // namespace

AttentionKernels<float> attention_kernels_f32() { return attention_kernels_for<float>(); }
AttentionKernels<bf16_t> attention_kernels_bf16() { return attention_kernels_for<bf16_t>(); }
RowKernels<float> row_kernels_f32() { return {&dot<float>, &scaled<float>}; }
RowKernels<bf16_t> row_kernels_bf16() { return {&dot<bf16_t>, &scaled<bf16_t>}; }

}  // namespace spillway::SPILLWAY_TARGET
