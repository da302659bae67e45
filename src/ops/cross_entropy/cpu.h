#pragma once

#include <memory>

#include "ops/kernel.h"

namespace spillway {

std::unique_ptr<Kernel> make_cross_entropy_cpu(const KernelKey& key);
std::unique_ptr<Kernel> make_loss_sum_cpu(const KernelKey& key);

}  // namespace spillway
