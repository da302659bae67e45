// On which pages the stays of a device's plan lie.
//
// A GPU takes tens of microseconds to map a page at an address, and nothing where the page that is wanted is mapped
// there already (cuda/page_pool.h). So the stays of one bundle lie on the same pages wherever these are free, above all
// the stay at the end of a step on those of the stay at its beginning: then a plan that follows itself has each page at
// the same addresses in every step. What lies on such pages in between is chosen to end before they are wanted again,
// as far as there is a choice (interval colouring with reserved colours). Among pages that do, those that came free
// first are taken, as nobody waits for their last use any more.
#pragma once

#include "plan/plan.h"

namespace spillway {

// Of a plan of one memory that was made `unplaced` (PlanRequest): lays its stays on pages, and makes what begins a stay
// wait for the last accesses to its pages. Uses as many pages at once as the plan does.
void place_stays(Plan& plan, const Layout& layout);

}  // namespace spillway
