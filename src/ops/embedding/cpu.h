#pragma once

#include <memory>

#include "ops/kernel.h"

namespace spillway {

std::unique_ptr<Kernel> make_embed_rows_cpu(const KernelKey& key);
std::unique_ptr<Kernel> make_embed_grad_cpu(const KernelKey& key);
std::unique_ptr<Kernel> make_add_positions_cpu(const KernelKey& key);

}  // namespace spillway
