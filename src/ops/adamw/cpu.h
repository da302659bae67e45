#pragma once

#include <memory>

#include "ops/kernel.h"

namespace spillway {

std::unique_ptr<Kernel> make_adamw_cpu(const KernelKey& key);

}  // namespace spillway
