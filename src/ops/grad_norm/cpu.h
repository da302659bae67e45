#pragma once

#include <memory>

#include "ops/kernel.h"

namespace spillway {

std::unique_ptr<Kernel> make_sum_squares_cpu(const KernelKey& key);
std::unique_ptr<Kernel> make_clip_factor_cpu(const KernelKey& key);

}  // namespace spillway
