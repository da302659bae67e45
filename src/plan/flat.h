// On which pages the stays of the host's plans lie, so that few pages have to be moved to an address.
//
// Pages of the host whose numbers follow each other lie next to each other (device/page_pool.h). A stay on such pages
// is flat where they are; the pages of any other are attached at the bundle's address, neighbours together and others
// one by one, which interrupts all threads, tens of microseconds each time. So stays are laid like the blocks of an
// allocator that knows when each ends: into the shortest gap that nobody wants back before that. And since what begins
// a stay waits for what its pages were used for before, it knows when things happened in a step whose stays lay
// elsewhere, and takes pages that were left by then. A bundle that is in memory between steps lies on the same pages at
// both ends of a plan, as far as there is a choice: then pages keep their numbers in plans that follow each other, and
// what is flat in one step is so in all.
#pragma once

#include <cstdint>
#include <span>

#include "plan/plan.h"

namespace spillway {

// What a plan finds that follows another one.
struct Ground {
  // Nothing is known of what was before.
  Ground(const Layout& layout, const Plan& plan);
  // `before`: the plan that it follows; the ends of that one's instructions and its length, in seconds from its start.
  Ground(const Layout& layout, const Plan& before, std::span<const double> ends, double seconds);

  std::vector<std::vector<PageId>> homes;  // by bundle: its pages, where it is in memory
  std::vector<double> left;                // by page: its last use, in seconds before the plan starts: at most 0
};

// Of a plan of one memory that was made `unplaced` (PlanRequest): lays its stays on pages, and makes what begins a stay
// wait for the last accesses to its pages. Uses as many pages at once as the plan does. `starts` and `ends`: by
// instruction, in seconds from the start of the plan, when it starts and ends where stays lie otherwise. `weight`: what
// it costs that a stay begins a second late, in seconds of a step: the less, the flatter.
void lay_flat(Plan& plan, const Layout& layout, std::span<const double> starts, std::span<const double> ends,
              const Ground& ground, double weight);

// Whether a plan is not too large to be laid.
bool may_be_laid_flat(const Plan& plan);

// Whether pages lie next to each other, in order.
bool is_flat(std::span<const PageId> pages);

}  // namespace spillway
