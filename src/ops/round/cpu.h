#pragma once

#include "ops/kernel.h"

namespace spillway {

std::unique_ptr<Kernel> make_round_to_bf16_cpu(const KernelKey& key);

}  // namespace spillway
