#pragma once

#include "ops/kernel.h"

namespace spillway {

std::unique_ptr<Kernel> make_column_sums_cpu(const KernelKey& key);
std::unique_ptr<Kernel> make_add_partials_cpu(const KernelKey& key);

}  // namespace spillway
