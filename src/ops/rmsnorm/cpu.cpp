#include "ops/rmsnorm/cpu.h"

#include <algorithm>

#include "base/bytes.h"
#include "ops/float_types.h"
#include "ops/reduce/reduce.h"
#include "ops/rmsnorm/kernel.h"

namespace spillway {
namespace {

// Groups do not depend on each other, so this size changes no bit.
constexpr std::int64_t forward_groups = 64;

template <typename T>
class RmsnormKernel : public Kernel {
 public:
  explicit RmsnormKernel(const KernelKey& key)
      : groups_(key.writes[1].rows),
        width_(key.reads[1].rows),
        epsilon_(static_cast<float>(key.attrs.real("epsilon"))) {}

  std::int64_t tasks() const override { return divide_up(groups_, forward_groups); }

  void run(std::int64_t task, const KernelArgs& args) const override {
    const std::int64_t group = task * forward_groups;
    normalise_({.x = args.read<T>(0) + group * width_,
                .w = args.read<T>(1),
                .y = args.write<T>(0) + group * width_,
                .rstd = args.write<float>(1) + group,
                .groups = std::min(forward_groups, groups_ - group),
                .width = width_,
                .epsilon = epsilon_});
  }

 private:
  std::int64_t groups_, width_;
  float epsilon_;
  void (*normalise_)(const RmsnormGroups<T>&) =
      pick<void (*)(const RmsnormGroups<T>&)>(SPILLWAY_TARGETS(rmsnorm_groups));
};

// One task a block of groups, which owns that block's row of the partials.
template <typename T>
class RmsnormDxKernel : public Kernel {
 public:
  explicit RmsnormDxKernel(const KernelKey& key) : groups_(key.reads[2].rows), width_(key.reads[1].rows) {}

  std::int64_t tasks() const override { return divide_up(groups_, partial_block_rows); }

  void run(std::int64_t task, const KernelArgs& args) const override {
    const std::int64_t group = task * partial_block_rows;
    differentiate_({.x = args.read<T>(0) + group * width_,
                    .w = args.read<T>(1),
                    .rstd = args.read<float>(2) + group,
                    .dy = args.read<T>(3) + group * width_,
                    .dx = args.write<T>(0) + group * width_,
                    .partial = args.write<float>(1) + task * width_,
                    .groups = std::min(partial_block_rows, groups_ - group),
                    .width = width_});
  }

 private:
  std::int64_t groups_, width_;
  void (*differentiate_)(const RmsnormDxBlock<T>&) =
      pick<void (*)(const RmsnormDxBlock<T>&)>(SPILLWAY_TARGETS(rmsnorm_dx_block));
};

}  // namespace

std::unique_ptr<Kernel> make_rmsnorm_cpu(const KernelKey& key) {
  return with_float_type(key.reads[0].dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    return std::make_unique<RmsnormKernel<T>>(key);
  });
}

std::unique_ptr<Kernel> make_rmsnorm_dx_cpu(const KernelKey& key) {
  return with_float_type(key.reads[0].dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    return std::make_unique<RmsnormDxKernel<T>>(key);
  });
}

}  // namespace spillway
