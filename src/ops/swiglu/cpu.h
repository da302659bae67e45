#pragma once

#include "ops/kernel.h"

namespace spillway {

std::unique_ptr<Kernel> make_swiglu_cpu(const KernelKey& key);
std::unique_ptr<Kernel> make_swiglu_dx_cpu(const KernelKey& key);

}  // namespace spillway
