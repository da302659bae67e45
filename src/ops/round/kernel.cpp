#include "ops/round/kernel.h"

#include "ops/strips.h"

namespace spillway::SPILLWAY_TARGET {

void round_elements(const float* x, bf16_t* y, std::int64_t count) {
  for_strips(count, [&](std::int64_t i, auto strip) { strip.store(y + i, strip.load(x + i)); });
}

}  // namespace spillway::SPILLWAY_TARGET
