// What CUDA answers, as DeviceError: one sentence that says what failed and what to do.
#pragma once

#include <string_view>

namespace spillway::cuda {

// `status` is a cudaError_t, or a CUresult of the driver, whose numbers are the same; `what` says what was tried, as
// "copying to the device".
void check(int status, std::string_view what);

// After kernels of `op` were started: that they could be.
void check_launch(std::string_view op);

}  // namespace spillway::cuda
