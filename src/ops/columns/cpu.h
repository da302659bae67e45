#pragma once

#include "ops/kernel.h"

namespace spillway {

std::unique_ptr<Kernel> make_columns_cpu(const KernelKey& key);

}  // namespace spillway
