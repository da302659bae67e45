#include "ops/attention/softmax.h"
#include "ops/dispatch.h"

SPILLWAY_DECLARE_TARGETS(AttentionKernels<float> attention_kernels_f32())
SPILLWAY_DECLARE_TARGETS(AttentionKernels<bf16_t> attention_kernels_bf16())
SPILLWAY_DECLARE_TARGETS(RowKernels<float> row_kernels_f32())
SPILLWAY_DECLARE_TARGETS(RowKernels<bf16_t> row_kernels_bf16())

namespace spillway {

template <>
const AttentionKernels<float>& attention_kernels<float>() {
  static const auto kernels = pick(SPILLWAY_TARGETS(attention_kernels_f32))();
  return kernels;
}

template <>
const AttentionKernels<bf16_t>& attention_kernels<bf16_t>() {
  static const auto kernels = pick(SPILLWAY_TARGETS(attention_kernels_bf16))();
  return kernels;
}

template <>
const RowKernels<float>& row_kernels<float>() {
  static const auto kernels = pick(SPILLWAY_TARGETS(row_kernels_f32))();
  return kernels;
}

template <>
const RowKernels<bf16_t>& row_kernels<bf16_t>() {
  static const auto kernels = pick(SPILLWAY_TARGETS(row_kernels_bf16))();
  return kernels;
}

}  // namespace spillway
