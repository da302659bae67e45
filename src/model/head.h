// The head on its fixed grid: tokens in groups, groups in chunks, the vocabulary in tiles. Logits exist for one chunk
// at a time; their gradients for one group, since a tile's weight gradient sums over a whole group in one product.
#pragma once

#include <vector>

#include "model/model.h"

namespace spillway {

struct HeadGrid {
  std::int64_t chunk_tokens = 0;
  std::int64_t group_tokens = 0;  // whole chunks
};

// Depends on the vocabulary alone, and on whether the grid is the large one: fp32 logits of a chunk take about 32 MiB,
// 16-bit gradients of a group about 128 MiB; in the large grid 256 MiB each.
HeadGrid head_grid(const Model& model);

// The chunks of a micro-batch of `tokens`, one f32 (chunk, 1) each: the types of its losses.
std::vector<ValueType> loss_types(const HeadGrid& grid, std::int64_t tokens);

struct HeadOperands {
  Operand x;        // (T, C), after the final norm
  Operand targets;  // i32 (T, 1)
  Operand scale;    // f32 (1, 1)
  Operand losses;   // one value a chunk, made from loss_types; written here
  // The products that make a tile's weight gradient wait for the backward of the embedding's tile, which adds to it:
  // until then the gradients of all logits are kept in its stead.
  bool late_gradient = false;
};

// Whether what the weight gradient of a tied head is made from, in a step of one micro-batch of so many tokens, takes
// less memory than its fp32 sum. Of more than one group each would have pages of its own for each tile: false. An
// untied head has no other contribution to wait for.
bool late_gradient_is_smaller(const Model& model, std::int64_t tokens);

// Forward and backward of the head for one micro-batch. Adds to the accumulators of the head's tiles, or lets that
// wait, and returns the gradient of x, (T, C). Ops carry `label` with running indices.
Operand record_training_head(Recorder& recorder, const Model& model, const HeadOperands& head, Label label);

// Losses alone.
void record_evaluation_head(Recorder& recorder, const Model& model, const HeadOperands& head, Label label);

// All logits of x (R, C), R small: one output f32 (R, tile) a tile.
std::vector<Operand> record_logits(Recorder& recorder, const Model& model, Operand x, Label label);

}  // namespace spillway
