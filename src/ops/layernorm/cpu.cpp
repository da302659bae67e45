#include "ops/layernorm/cpu.h"

#include <algorithm>

#include "base/bytes.h"
#include "ops/float_types.h"
#include "ops/layernorm/kernel.h"
#include "ops/reduce/reduce.h"

namespace spillway {
namespace {

// Rows do not depend on each other, so this size changes no bit.
constexpr std::int64_t forward_rows = 64;

template <typename T>
class LayernormKernel : public Kernel {
 public:
  explicit LayernormKernel(const KernelKey& key)
      : rows_(key.reads[0].rows), cols_(key.reads[0].cols), epsilon_(static_cast<float>(key.attrs.real("epsilon"))) {}

  std::int64_t tasks() const override { return divide_up(rows_, forward_rows); }

  void run(std::int64_t task, const KernelArgs& args) const override {
    const std::int64_t row = task * forward_rows;
    normalise_({.x = args.read<T>(0) + row * cols_,
                .w = args.read<T>(1),
                .b = args.read<T>(2),
                .y = args.write<T>(0) + row * cols_,
                .mean = args.write<float>(1) + row,
                .rstd = args.write<float>(2) + row,
                .rows = std::min(forward_rows, rows_ - row),
                .cols = cols_,
                .epsilon = epsilon_});
  }

 private:
  std::int64_t rows_, cols_;
  float epsilon_;
  void (*normalise_)(const LayernormRows<T>&) =
      pick<void (*)(const LayernormRows<T>&)>(SPILLWAY_TARGETS(layernorm_rows));
};

// One task a block of rows, which owns that block's row of both partials.
template <typename T>
class LayernormDxKernel : public Kernel {
 public:
  explicit LayernormDxKernel(const KernelKey& key) : rows_(key.reads[0].rows), cols_(key.reads[0].cols) {}

  std::int64_t tasks() const override { return divide_up(rows_, partial_block_rows); }

  void run(std::int64_t task, const KernelArgs& args) const override {
    const std::int64_t row = task * partial_block_rows;
    differentiate_({.x = args.read<T>(0) + row * cols_,
                    .w = args.read<T>(1),
                    .mean = args.read<float>(2) + row,
                    .rstd = args.read<float>(3) + row,
                    .dy = args.read<T>(4) + row * cols_,
                    .dx = args.write<T>(0) + row * cols_,
                    .partial_w = args.write<float>(1) + task * cols_,
                    .partial_b = args.write<float>(2) + task * cols_,
                    .rows = std::min(partial_block_rows, rows_ - row),
                    .cols = cols_});
  }

 private:
  std::int64_t rows_, cols_;
  void (*differentiate_)(const LayernormDxBlock<T>&) =
      pick<void (*)(const LayernormDxBlock<T>&)>(SPILLWAY_TARGETS(layernorm_dx_block));
};

}  // namespace

std::unique_ptr<Kernel> make_layernorm_cpu(const KernelKey& key) {
  return with_float_type(key.reads[0].dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    return std::make_unique<LayernormKernel<T>>(key);
  });
}

std::unique_ptr<Kernel> make_layernorm_dx_cpu(const KernelKey& key) {
  return with_float_type(key.reads[0].dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    return std::make_unique<LayernormDxKernel<T>>(key);
  });
}

}  // namespace spillway
