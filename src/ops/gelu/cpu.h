#pragma once

#include "ops/kernel.h"

namespace spillway {

std::unique_ptr<Kernel> make_gelu_cpu(const KernelKey& key);
std::unique_ptr<Kernel> make_gelu_dx_cpu(const KernelKey& key);

}  // namespace spillway
