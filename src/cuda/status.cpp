#include "cuda/status.h"

#include <cuda_runtime_api.h>

#include "base/error.h"

namespace spillway::cuda {
namespace {

// What a user can do about it.
std::string_view advice(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation: return "give less --device-memory, or end what else uses the device";
    case cudaErrorECCUncorrectable:
      return "the device's memory is faulty: run on another, or reset it; what was committed is safe";
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorHardwareStackError:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert: return "this is a fault of spillway's: please report it; what was committed is safe";
    case cudaErrorNoKernelImageForDevice: return "this build has no code for the device: build with its architecture";
    case cudaErrorDevicesUnavailable: return "another process has the device to itself: end it, or give --device cpu";
    default: return "what was committed is safe; see the driver's messages (dmesg)";
  }
}

}  // namespace

void check(int status, std::string_view what) {
  const auto error = static_cast<cudaError_t>(status);
  if (error == cudaSuccess) return;
  cudaGetLastError();  // it is told here, and not to be taken for one of a launch
  throw DeviceError("CUDA: {} failed: {} ({}); {}", what, cudaGetErrorString(error), cudaGetErrorName(error),
                    advice(error));
}

void check_launch(std::string_view op) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  throw DeviceError("CUDA: starting {} failed: {} ({}); {}", op, cudaGetErrorString(error), cudaGetErrorName(error),
                    advice(error));
}

}  // namespace spillway::cuda
