// The part of planning in which policies differ: which bundle in memory gives way first, what leaves though there is
// room, and how far ahead of their use bundles are read. Whatever a policy says, the plan is right; it may be slow.
#pragma once

#include <memory>

#include "plan/plan.h"
#include "plan/uses.h"

namespace spillway {

// A bundle in memory. Segments are counted as in plan/uses.h.
struct Candidate {
  BundleId bundle = BundleId::none;
  std::int32_t last_use = -1;  // the segment that touched it last; -1: none in this step
  std::int32_t next_use = 0;   // the segment that touches it next
  std::int64_t pages = 0;
};

class VictimPolicy {
 public:
  virtual ~VictimPolicy() = default;
  // The highest gives way first, of what is neither pinned nor settling. Asked when the bundle comes into memory and
  // after each use.
  virtual std::int64_t rank(const Candidate& candidate) const { return candidate.next_use; }
  // Whether that is what rank says, so that where the highest is needed too soon all are.
  virtual bool ranks_by_next_use() const { return true; }
  virtual std::int32_t lookahead_segments() const = 0;
  // The share, of the pages that are not pinned, that reads ahead leave free or to what is needed later than they are.
  virtual double share_left_by_reads() const { return 0; }
  virtual double settling_share() const { return 0; }  // as PlanRequest::settling
  // How many times as far as a read ahead the next use of what gives way to it must lie where that has to be written:
  // it moves twice, out and back, for a read that could as well be made later.
  virtual std::int64_t written_for_reads() const { return 1; }
  // Whether reads wait until computing has come to the segment in which they are issued; otherwise they begin as soon
  // as their pages are free.
  virtual bool paced() const { return false; }
  // Whether the bundle leaves right after this use.
  virtual bool leaves(const Candidate&) const { return false; }
};

// Of the request `policy` and `settling` count. `uses` and `layout` outlive the policy.
std::unique_ptr<VictimPolicy> make_policy(const PlanRequest& request, const Layout& layout, std::int32_t program,
                                          std::int64_t pages, const Uses& uses);

}  // namespace spillway
