#pragma once

#include "ops/kernel.h"

namespace spillway {

std::unique_ptr<Kernel> make_rope_cpu(const KernelKey& key);

}  // namespace spillway
