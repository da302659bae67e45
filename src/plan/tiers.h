// Two memories over disk: a device, whose pages ops use, and the host below it.
//
// Such a plan is two plans of one memory, one on top of the other. The device's is the plan of the Program in the
// device's pages; what it reads and writes are copies, up from the host and down to it. The host's is the plan of
// these copies, in their order, in the host's pages: a copy up reads a bundle there, a copy down makes it anew, and
// what gives way goes to disk. Both come from the same planner. Merged, each copy is one instruction that names its
// stay on either side and waits for what both plans say.
//
// An op whose bits are the same on every processor may run on the host's, where its state lies: PlanRequest::below says
// which. Such an op is one of the host's plan, in a lane of its own; in the device's it only has a place in the order.
// What it reads has come down before, and what it writes goes up when the device wants it.
//
// So the host's memory is a cache over disk of what the device does not hold, and its policy decides what goes on to
// disk; with pages enough nothing does.
#pragma once

#include "plan/plan.h"

namespace spillway {

struct TierPages {
  std::int64_t device = 0;
  std::int64_t host = 0;
};

struct TierResidents {
  Residents device;
  Residents host;
};

// What two plans with device pages must agree on to follow each other: see residents_of.
TierResidents tier_residents_of(const Plan& plan);

// Plans one Program in these pages: of the device at least smallest_pages(), of the host at least
// smallest_host_pages(). Of the request, policy, commits, pinned and clean count, for both memories, and below and
// direct. `boundary`: what the plan finds and leaves; null: it settles one at which it can follow itself.
Plan make_tiered_plan(const Layout& layout, std::int32_t program, const TierPages& pages, const PlanRequest& request,
                      const TierResidents* boundary = nullptr);

// For any bundle on its way, and for loading and saving.
std::int64_t smallest_host_pages(const Layout& layout);
// The same, and for segments of a Program that run in the host's memory.
std::int64_t smallest_host_pages(const Layout& layout, std::int32_t program, const std::vector<bool>& below);

}  // namespace spillway
