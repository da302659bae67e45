// Attention in bf16 with heads of at most 128 elements, a multiple of 8: scores stay in registers, and tiles are
// fetched while the one before is worked on (FlashAttention-2, Dao, arXiv 2307.08691, with one owner for each sum).
// Other heads, and f32, take the kernels of attention.cu and attention_dx.cu.
#pragma once

#include "cuda/launch.h"
#include "cuda/mma.cuh"

namespace spillway::cuda {

constexpr int fragment_warps = 4;  // of a block, each with 16 of its 64 rows
constexpr int fragment_threads = 32 * fragment_warps;
constexpr int fragment_rows = 16 * fragment_warps;
constexpr float log2_of_e = 1.44269504088896341F;

// Whether these kernels serve heads that lie so.
inline bool has_fragment_kernels(Float type, const AttentionSizes& sizes) {
  return type == Float::bf16 && sizes.head_dim <= 128 && sizes.head_dim % 8 == 0;
}

// Start only.
void attention_of_fragments(Stream stream, const Attention& of);
void attention_dx_of_fragments(Stream stream, const AttentionDx& of);

// What does not depend on the query head: rows of one sequence, and the column at which a head begins.
template <typename Of>
__device__ const bf16_bits* head_at(const Of& heads, std::int64_t sequence_row, std::int64_t head, int head_dim) {
  return static_cast<const bf16_bits*>(heads.first) + sequence_row * heads.stride + head * head_dim;
}
__device__ inline bf16_bits* head_at(const HeadsOut& heads, std::int64_t sequence_row, std::int64_t head,
                                     int head_dim) {
  return static_cast<bf16_bits*>(heads.first) + sequence_row * heads.stride + head * head_dim;
}

}  // namespace spillway::cuda
