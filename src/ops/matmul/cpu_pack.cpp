#include "ops/dispatch.h"
#include "ops/matmul/pack.h"

SPILLWAY_DECLARE_TARGETS(PackKernels pack_kernels_of_target())

namespace spillway {

const PackKernels& pack_kernels() {
  static const PackKernels kernels =
      pick(&baseline::pack_kernels_of_target, &avx2::pack_kernels_of_target, &avx512::pack_kernels_of_target)();
  return kernels;
}

}  // namespace spillway
