// The CPU kernels of linear layers: row panels of one product each. See ops/matmul/panel_matmul.h for panel sizes.
#pragma once

#include <memory>

#include "ops/kernel.h"

namespace spillway {

std::unique_ptr<Kernel> make_linear_cpu(const KernelKey& key);
std::unique_ptr<Kernel> make_linear_dx_cpu(const KernelKey& key);
// One task a panel of rows of the gradient. Scratch: a panel of dy (or x), transposed: 64 to 256 rows of all tokens.
std::unique_ptr<Kernel> make_linear_dw_cpu(const KernelKey& key);

}  // namespace spillway
