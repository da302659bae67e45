#include "ops/rope/cpu.h"

#include <algorithm>

#include "base/bytes.h"
#include "ops/float_types.h"
#include "ops/rope/kernel.h"

namespace spillway {
namespace {

// Rows do not depend on each other, so this size changes no bit.
constexpr std::int64_t task_rows = 64;

template <typename T>
class RopeKernel : public Kernel {
 public:
  explicit RopeKernel(const KernelKey& key)
      : rows_(key.reads[0].rows),
        cols_(key.reads[0].cols),
        head_dim_(key.attrs.integer("head_dim")),
        inverse_(key.attrs.integer("inverse") != 0) {}

  std::int64_t tasks() const override { return divide_up(rows_, task_rows); }
  std::int64_t scratch_bytes() const override { return head_dim_ * size_of(DType::f32); }

  void run(std::int64_t task, const KernelArgs& args) const override {
    const std::int64_t row = task * task_rows;
    rotate_({.x = args.read<T>(0) + row * cols_,
             .positions = args.read<std::int32_t>(1) + row,
             .frequencies = args.read<float>(2),
             .y = args.write<T>(0) + row * cols_,
             .table = reinterpret_cast<float*>(args.scratch.data()),
             .rows = std::min(task_rows, rows_ - row),
             .heads = cols_ / head_dim_,
             .head_dim = head_dim_,
             .inverse = inverse_});
  }

 private:
  std::int64_t rows_, cols_, head_dim_;
  bool inverse_;
  void (*rotate_)(const RopeRows<T>&) = pick<void (*)(const RopeRows<T>&)>(SPILLWAY_TARGETS(rope_rows));
};

}  // namespace

std::unique_ptr<Kernel> make_rope_cpu(const KernelKey& key) {
  return with_float_type(key.reads[0].dtype,
                         [&]<typename T>() -> std::unique_ptr<Kernel> { return std::make_unique<RopeKernel<T>>(key); });
}

}  // namespace spillway
