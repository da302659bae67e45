// Recomputation: forward values that backward reads are not kept but made again just before, by the same ops on the
// same reads, so they have the same bits. What is computed does not change, so this works on a recorded step and needs
// no rule of its own in any op. After Chen et al., "Training Deep Nets with Sublinear Memory Cost" (arXiv 1604.06174),
// and Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (arXiv 2205.05198).
#pragma once

#include "program/program.h"

namespace spillway {

// Each kind makes more again than the one before.
enum class RecomputeKind : std::uint8_t {
  none,
  cheap,      // what takes no matrix product: norms, activation functions, rotations, sums
  attention,  // the parts named "attention", all but their input and output; and what is cheap elsewhere
  block,      // everything of a layer but its input
};
std::string_view name_of(RecomputeKind kind);

struct Recompute {
  RecomputeKind kind = RecomputeKind::none;
  std::int32_t layers = 0;  // the first so many; their values are the ones that would be kept longest

  bool operator==(const Recompute&) const = default;
};

// Changes a step so that backward ops of these layers read values made again. An op is recorded again at most once a
// micro-batch, in the segment that wants its values first; ops of another part of the layer come in segments of their
// own before that one, in the phase `recompute`, since a segment holds in memory whatever it touches.
//
// A cheap op is recorded again only where its reads are there in backward in any case: otherwise keeping its reads
// would cost what its writes cost. Values that the host or another layer reads are always kept.
void recompute(Program& program, const Recompute& what);

}  // namespace spillway
