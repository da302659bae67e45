#pragma once

#include <memory>

#include "ops/kernel.h"

namespace spillway {

std::unique_ptr<Kernel> make_kv_append_cpu(const KernelKey& key);
std::unique_ptr<Kernel> make_kv_attention_cpu(const KernelKey& key);

}  // namespace spillway
