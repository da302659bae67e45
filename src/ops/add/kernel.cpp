#include "ops/add/kernel.h"

#include "ops/strips.h"

namespace spillway::SPILLWAY_TARGET {
namespace {

template <typename T>
void add_all(const T* a, const T* b, T* y, std::int64_t count) {
  for_strips(count, [&](std::int64_t i, auto strip) { strip.store(y + i, strip.load(a + i) + strip.load(b + i)); });
}

}  // namespace

void add_elements(const float* a, const float* b, float* y, std::int64_t count) { add_all(a, b, y, count); }
void add_elements(const bf16_t* a, const bf16_t* b, bf16_t* y, std::int64_t count) { add_all(a, b, y, count); }

}  // namespace spillway::SPILLWAY_TARGET
