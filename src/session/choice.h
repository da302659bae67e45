// How a step is worked through: what is recomputed and in which order. All choices give the same bits.
#pragma once

#include <optional>

#include "model/programs.h"
#include "session/options.h"

namespace spillway {

// What `recompute` asks for: none, cheap, attention or block, and after a colon for how many layers; nothing for auto.
// Throws UserError.
std::optional<Recompute> forced_recompute(const TrainOptions& options, std::int64_t layers);
std::optional<WorkOrder> forced_order(const TrainOptions& options);

}  // namespace spillway
