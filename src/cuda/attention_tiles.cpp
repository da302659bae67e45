#include "cuda/attention_tiles.h"

#include "base/error.h"

namespace spillway::cuda {
namespace {

constexpr bool fit(Float type, std::int64_t head_dim) {
  return attention_layout(type, head_dim).bytes <= least_shared_bytes &&
         dk_dv_layout(type, head_dim).bytes <= least_shared_bytes &&
         dq_layout(type, head_dim).bytes <= least_shared_bytes;
}

// The largest heads of each class.
static_assert(fit(Float::bf16, 64) && fit(Float::bf16, 128) && fit(Float::bf16, attention_most_head_dim));
static_assert(fit(Float::f32, 64) && fit(Float::f32, 128) && fit(Float::f32, attention_most_head_dim));

}  // namespace

void check_attention_heads(std::int64_t head_dim) {
  if (head_dim <= attention_most_head_dim) return;
  throw UserError("head_dim is {}, and on CUDA attention has kernels for heads of up to {}: give --device cpu",
                  head_dim, attention_most_head_dim);
}

}  // namespace spillway::cuda
