// One line an op.
#include "cuda/kernels.h"

#include <array>

#include "base/error.h"
#include "ops/adamw/adamw.h"
#include "ops/add/add.h"
#include "ops/attention/attention.h"
#include "ops/columns/columns.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/embedding/embedding.h"
#include "ops/gelu/gelu.h"
#include "ops/grad_norm/grad_norm.h"
#include "ops/kv_cache/kv_cache.h"
#include "ops/layernorm/layernorm.h"
#include "ops/linear/linear.h"
#include "ops/reduce/reduce.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rope/rope.h"
#include "ops/round/round.h"
#include "ops/swiglu/swiglu.h"

namespace spillway::cuda {
namespace {

struct Entry {
  const OpSpec* spec;
  MakeKernel make;
};

constexpr auto entries = std::to_array<Entry>({
    {&adamw_spec, make_adamw},
    {&add_spec, make_add},
    {&add_partials_spec, make_add_partials},
    {&add_positions_spec, make_add_positions},
    {&attention_spec, make_attention},
    {&attention_dx_spec, make_attention_dx},
    {&clip_factor_spec, make_clip_factor},
    {&column_sums_spec, make_column_sums},
    {&columns_spec, make_columns},
    {&cross_entropy_spec, make_cross_entropy},
    {&embed_grad_spec, make_embed_grad},
    {&embed_rows_spec, make_embed_rows},
    {&gelu_spec, make_gelu},
    {&gelu_dx_spec, make_gelu_dx},
    {&kv_append_spec, make_kv_append},
    {&kv_attention_spec, make_kv_attention},
    {&layernorm_spec, make_layernorm},
    {&layernorm_dx_spec, make_layernorm_dx},
    {&linear_spec, make_linear},
    {&linear_dw_spec, make_linear_dw},
    {&linear_dx_spec, make_linear_dx},
    {&loss_sum_spec, make_loss_sum},
    {&rmsnorm_spec, make_rmsnorm},
    {&rmsnorm_dx_spec, make_rmsnorm_dx},
    {&rope_spec, make_rope},
    {&round_to_bf16_spec, make_round_to_bf16},
    {&sum_squares_spec, make_sum_squares},
    {&swiglu_spec, make_swiglu},
    {&swiglu_dx_spec, make_swiglu_dx},
});

}  // namespace

std::unique_ptr<Kernel> make_cuda_kernel(const KernelKey& key, Device& device) {
  for (const Entry& entry : entries) {
    if (entry.spec == key.spec) return entry.make(key, device);
  }
  SPILLWAY_CHECK(false, "no CUDA kernel of op {}", key.spec->name);
}

}  // namespace spillway::cuda
