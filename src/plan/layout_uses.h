// How the segments of a Program use the bundles that were laid out for it.
#pragma once

#include <cstddef>

#include "plan/layout.h"

namespace spillway {

// Fills uses, output_makers, dead_on_entry and dead_on_exit of layout.programs[at], whose segments and places are there
// already, as are all bundles and the places of the pieces.
void note_uses(const Program& program, const State& state, Layout& layout, std::size_t at);

}  // namespace spillway
