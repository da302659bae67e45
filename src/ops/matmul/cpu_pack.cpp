#include "ops/dispatch.h"
#include "ops/matmul/pack.h"

SPILLWAY_DECLARE_TARGETS(PackKernels pack_kernels_of_target())

namespace spillway {

const PackKernels& pack_kernels() {
  static const PackKernels kernels = pick(SPILLWAY_TARGETS(pack_kernels_of_target))();
  return kernels;
}

}  // namespace spillway
