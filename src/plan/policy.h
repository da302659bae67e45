// The part of planning in which policies differ: which bundle in memory gives way first, and how far ahead of their use
// bundles are read. Whatever a policy says, the plan is right; it may be slow.
#pragma once

#include <memory>

#include "plan/plan.h"

namespace spillway {

// A bundle in memory. Segments are counted as in plan/uses.h.
struct Candidate {
  std::int32_t last_use = -1;  // the segment that touched it last; -1: none in this step
  std::int32_t next_use = 0;   // the segment that touches it next
  std::int64_t pages = 0;
};

class VictimPolicy {
 public:
  virtual ~VictimPolicy() = default;
  // The highest gives way first. Asked when the bundle comes into memory and after each use.
  virtual std::int64_t rank(const Candidate& candidate) const = 0;
  virtual std::int32_t lookahead_segments() const = 0;
};

std::unique_ptr<VictimPolicy> make_policy(Policy policy);

}  // namespace spillway
