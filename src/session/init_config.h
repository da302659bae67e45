// What `spillway init` was asked for, as a ModelConfig.
#pragma once

#include "model/config.h"
#include "session/options.h"

namespace spillway {

// The preset, or the family's usual values, with every size the options give in its place. vocab_size stays 0 when
// neither says it. Throws UserError on an unknown preset, sizes that are missing or do not divide, and sizes that the
// family does not have.
ModelConfig config_of(const InitOptions& options);

}  // namespace spillway
