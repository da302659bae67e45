// In the place of the backend, where there is no toolkit to build it with.
#include "base/error.h"
#include "cuda/cuda.h"

namespace spillway {

bool built_with_cuda() { return false; }

std::shared_ptr<Accelerator> open_cuda_device() {
  throw UserError(
      "device is cuda, and this spillway was built without CUDA; build it where nvcc is (SPILLWAY_CUDA=ON says what is "
      "missing), or give --device cpu");
}

}  // namespace spillway
