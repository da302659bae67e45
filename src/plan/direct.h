// Moves between disk and device that leave the host's memory out, for a device with a path of its own to the disk.
//
// A pass over a finished plan of two memories. Where a stay of the host only lets a bundle through, its two moves
// become one, which names the stay of the device:
//   read, then up       a read, where the copy up stood, so the reads of a plan are in the order in which they are
//                       wanted on the device. It waits for its pages there and for what wrote its copy on disk.
//   down, then write    a write, where the copy down stood. What waited for the copy waits for the write, so the pages
//                       of the device are kept until their bytes are on disk.
// State is written by way of the host always, since its bytes are summed there (store/checksum.h); it may be read past
// it. What else was in the host's memory, and when, stays as it was planned: the pages that are spared go unused.
#pragma once

#include "plan/plan.h"

namespace spillway {

Plan with_direct_moves(Plan plan, const Layout& layout);

}  // namespace spillway
