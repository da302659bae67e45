// The CPU kernels: one line an op.
#include <array>

#include "base/error.h"
#include "ops/adamw/adamw.h"
#include "ops/adamw/cpu.h"
#include "ops/add/add.h"
#include "ops/add/cpu.h"
#include "ops/attention/attention.h"
#include "ops/attention/cpu.h"
#include "ops/columns/columns.h"
#include "ops/columns/cpu.h"
#include "ops/cross_entropy/cpu.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/embedding/cpu.h"
#include "ops/embedding/embedding.h"
#include "ops/gelu/cpu.h"
#include "ops/gelu/gelu.h"
#include "ops/grad_norm/cpu.h"
#include "ops/grad_norm/grad_norm.h"
#include "ops/kernel.h"
#include "ops/kv_cache/cpu.h"
#include "ops/kv_cache/kv_cache.h"
#include "ops/layernorm/cpu.h"
#include "ops/layernorm/layernorm.h"
#include "ops/linear/cpu.h"
#include "ops/linear/linear.h"
#include "ops/reduce/cpu.h"
#include "ops/reduce/reduce.h"
#include "ops/rmsnorm/cpu.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rope/cpu.h"
#include "ops/rope/rope.h"
#include "ops/round/cpu.h"
#include "ops/round/round.h"
#include "ops/swiglu/cpu.h"
#include "ops/swiglu/swiglu.h"

namespace spillway {
namespace {

struct Entry {
  const OpSpec* spec;
  std::unique_ptr<Kernel> (*make)(const KernelKey& key);
};

constexpr auto entries = std::to_array<Entry>({
    {&adamw_spec, make_adamw_cpu},
    {&add_spec, make_add_cpu},
    {&add_partials_spec, make_add_partials_cpu},
    {&add_positions_spec, make_add_positions_cpu},
    {&attention_spec, make_attention_cpu},
    {&attention_dx_spec, make_attention_dx_cpu},
    {&clip_factor_spec, make_clip_factor_cpu},
    {&column_sums_spec, make_column_sums_cpu},
    {&columns_spec, make_columns_cpu},
    {&cross_entropy_spec, make_cross_entropy_cpu},
    {&embed_grad_spec, make_embed_grad_cpu},
    {&embed_rows_spec, make_embed_rows_cpu},
    {&gelu_spec, make_gelu_cpu},
    {&gelu_dx_spec, make_gelu_dx_cpu},
    {&kv_append_spec, make_kv_append_cpu},
    {&kv_attention_spec, make_kv_attention_cpu},
    {&layernorm_spec, make_layernorm_cpu},
    {&layernorm_dx_spec, make_layernorm_dx_cpu},
    {&linear_spec, make_linear_cpu},
    {&linear_dw_spec, make_linear_dw_cpu},
    {&linear_dx_spec, make_linear_dx_cpu},
    {&loss_sum_spec, make_loss_sum_cpu},
    {&rmsnorm_spec, make_rmsnorm_cpu},
    {&rmsnorm_dx_spec, make_rmsnorm_dx_cpu},
    {&rope_spec, make_rope_cpu},
    {&round_to_bf16_spec, make_round_to_bf16_cpu},
    {&sum_squares_spec, make_sum_squares_cpu},
    {&swiglu_spec, make_swiglu_cpu},
    {&swiglu_dx_spec, make_swiglu_dx_cpu},
});

}  // namespace

std::unique_ptr<Kernel> make_cpu_kernel(const KernelKey& key) {
  for (const Entry& entry : entries) {
    if (entry.spec == key.spec) return entry.make(key);
  }
  SPILLWAY_CHECK(false, "no CPU kernel of op {}", key.spec->name);
}

}  // namespace spillway
