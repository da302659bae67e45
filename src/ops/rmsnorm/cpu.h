#pragma once

#include "ops/kernel.h"

namespace spillway {

std::unique_ptr<Kernel> make_rmsnorm_cpu(const KernelKey& key);
std::unique_ptr<Kernel> make_rmsnorm_dx_cpu(const KernelKey& key);

}  // namespace spillway
