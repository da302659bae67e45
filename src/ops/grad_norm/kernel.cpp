#include "ops/grad_norm/kernel.h"

#include "ops/simd.h"

namespace spillway::SPILLWAY_TARGET {
namespace {

template <typename T>
SPILLWAY_INLINE void add_squares(f64x16& total, const T* from) {
  const f64x16 wide = extended(load(from));
  total += wide * wide;
}

}  // namespace

template <typename T>
double block_sum_squares(const T* grad, std::int64_t count, std::int64_t ahead) {
  f64x16 total = {};
  std::int64_t i = 0;
  for (; ahead > 0 && i + ahead + lanes <= count; i += lanes) {
    __builtin_prefetch(grad + i + ahead);
    add_squares(total, grad + i);
  }
  for (; i + lanes <= count; i += lanes) add_squares(total, grad + i);
  if (i < count) {
    T padded[lanes] = {};
    std::memcpy(padded, grad + i, static_cast<std::size_t>(count - i) * sizeof(T));
    add_squares(total, padded);
  }
  return sum(total);
}

template double block_sum_squares(const float*, std::int64_t, std::int64_t);
template double block_sum_squares(const bf16_t*, std::int64_t, std::int64_t);

}  // namespace spillway::SPILLWAY_TARGET
