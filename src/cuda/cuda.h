// The CUDA backend: one NVIDIA device. A build without the toolkit has it too, and there it says so.
#pragma once

#include <memory>

#include "executor/accelerator.h"

namespace spillway {

bool built_with_cuda();

// Opens the first device that this process sees. Throws UserError in a build without CUDA; DeviceError when the driver
// is missing or too old, there is no device, it is too old (before sm_80), or cuBLASLt is missing.
std::shared_ptr<Accelerator> open_cuda_device();

}  // namespace spillway
