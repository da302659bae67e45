// Which updates run on the device, and which on the host's processor beside it. After Deep Optimizer States (arXiv
// 2410.21316), which updates one of every k sub-groups on the device: there the gradient crosses the link and the
// weight comes back, here the whole state does, both ways. The two run interleaved, so that both end together.
//
// No bit depends on it: an update's bits are the same on every processor.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "machine/rates.h"
#include "plan/plan.h"

namespace spillway {

// Segments of updates that write to the same bundles, which then are newest in one memory: they run on one processor.
struct UpdateGroup {
  std::vector<std::int32_t> segments;
  std::int64_t parameters = 0;
  // Some of what it writes is touched by updates alone, and moves for them alone. Without it the device has its state
  // at hand all the time.
  bool moves = false;
};

// In the order of their first segments.
std::vector<UpdateGroup> update_groups(const Program& program, const Layout& layout, std::int32_t number);

// By segment, for PlanRequest::below: those that run on the host when the device updates this share of all parameters.
// The device has groups evenly in between; those that do not move are its own at any share above 0.
std::vector<bool> updates_below(const std::vector<UpdateGroup>& groups, const Layout& layout, std::int32_t number,
                                double device_share);

// What a parameter's update costs a link where it runs on the device, each way, or on the host.
struct UpdateBytes {
  double state = 12;    // up before, and down after it
  double gradient = 2;  // down
  double weight = 2;    // up
};

// The share at which both processors end together in the steady state, as 1/k of the closed form
//   k = 1 + (state/link + 1/device) / (1/host - (gradient or weight)/link)
// 0 where the device never pays. Rates are above 0.
double balanced_device_share(const UpdateRates& rates, const LinkRate& link, const UpdateBytes& bytes);

// The best share found by trying: none and all, so that it is never worse than either, the estimate, and shares near
// the best, `finest` apart at least. `seconds`: of a step with such a share.
double choose_device_share(double estimate, double finest, const std::function<double(double share)>& seconds);

}  // namespace spillway
