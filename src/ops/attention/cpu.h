// The CPU kernels of attention: block products by ops/matmul, the softmax between them in 16-lane kernels.
#pragma once

#include <memory>

#include "ops/kernel.h"

namespace spillway {

// Queries and keys are cut in blocks of this many tokens, padded with zeros, so that two products serve every block.
constexpr std::int64_t attention_block_rows = 128;

// One task a sequence, key/value head and block of queries, the longest first. Scratch, for sequences of T tokens
// padded to whole blocks: 2·T·d elements for k and v, 4·T·128 bytes for a strip of scores, and some blocks.
std::unique_ptr<Kernel> make_attention_cpu(const KernelKey& key);

// One task a sequence and key/value head, which owns dk and dv of that head and dq of its query heads. Scratch: 2·T·d
// elements for k and v, 8·T·d bytes for dk and dv, and some blocks.
std::unique_ptr<Kernel> make_attention_dx_cpu(const KernelKey& key);

}  // namespace spillway
