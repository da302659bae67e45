#include "ops/embedding/kernel.h"

#include "ops/simd.h"

namespace spillway::SPILLWAY_TARGET {

template <typename T>
void accumulate_embedding(float* accumulator, const T* dx, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) store(accumulator + i, load(accumulator + i) + load(dx + i));
  if (i < count) {
    const std::int64_t rest = count - i;
    store_first(accumulator + i, load_first(accumulator + i, rest) + load_first(dx + i, rest), rest);
  }
}

template <typename T>
void add_position(T* out, const T* x, const T* weight, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) store(out + i, load(x + i) + load(weight + i));
  if (i < count) {
    const std::int64_t rest = count - i;
    store_first(out + i, load_first(x + i, rest) + load_first(weight + i, rest), rest);
  }
}

template void accumulate_embedding(float*, const float*, std::int64_t);
template void accumulate_embedding(float*, const bf16_t*, std::int64_t);
template void add_position(float*, const float*, const float*, std::int64_t);
template void add_position(bf16_t*, const bf16_t*, const bf16_t*, std::int64_t);

}  // namespace spillway::SPILLWAY_TARGET
