// The kernels of a device: one for each op of ops/, as in cpu_registry.cpp. A kernel has one task, which starts the op.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "cuda/device.h"
#include "cuda/status.h"

namespace spillway::cuda {

// Throws UserError when the device cannot run the op at this shape.
std::unique_ptr<Kernel> make_cuda_kernel(const KernelKey& key, Device& device);

// Start is called with the addresses, on the thread that starts ops.
template <typename Start>
class StartedKernel final : public Kernel {
 public:
  StartedKernel(std::string_view op, Start start) : op_(op), start_(std::move(start)) {}
  std::int64_t tasks() const override { return 1; }
  void run(std::int64_t, const KernelArgs& args) const override {
    start_(args);
    check_launch(op_);
  }

 private:
  std::string_view op_;
  Start start_;
};

template <typename Start>
std::unique_ptr<Kernel> started(const KernelKey& key, Start start) {
  return std::make_unique<StartedKernel<Start>>(key.spec->name, std::move(start));
}

inline Float float_of(DType dtype) { return dtype == DType::bf16 ? Float::bf16 : Float::f32; }

// By file: kernels_rows.cpp, kernels_sums.cpp, kernels_products.cpp.
using MakeKernel = std::unique_ptr<Kernel> (*)(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_add(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_add_positions(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_columns(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_embed_grad(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_embed_rows(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_gelu(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_gelu_dx(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_kv_append(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_layernorm(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_layernorm_dx(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_rmsnorm(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_rmsnorm_dx(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_rope(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_round_to_bf16(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_swiglu(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_swiglu_dx(const KernelKey& key, Device& device);

std::unique_ptr<Kernel> make_adamw(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_add_partials(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_clip_factor(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_column_sums(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_cross_entropy(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_loss_sum(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_sum_squares(const KernelKey& key, Device& device);

std::unique_ptr<Kernel> make_attention(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_attention_dx(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_kv_attention(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_linear(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_linear_dw(const KernelKey& key, Device& device);
std::unique_ptr<Kernel> make_linear_dx(const KernelKey& key, Device& device);

}  // namespace spillway::cuda
