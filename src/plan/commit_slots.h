// Disk as a capacity: how many slots a run needs whose commits are kept.
#pragma once

#include <cstdint>
#include <span>

#include "plan/plan.h"

namespace spillway {

struct CommitSpace {
  std::int64_t retained_commits = 1;
  std::int64_t leases = 0;          // old commits that an export may be reading at once
  std::int64_t manifest_bytes = 0;  // of one commit, at most
  std::int64_t slack_bytes = 0;     // what is written while a commit becomes durable; less only makes writes wait
};

struct CommitSlots {
  std::int64_t slots = 0;     // all
  std::int64_t reserved = 0;  // of these, for manifests
};

// (retained + leases + 1) times the state, since every version a commit names may differ from all others; what is in
// flight; the local bundles of the plans; the slack; and the manifests of the retained commits and of the pending one.
CommitSlots commit_slots_for(const Layout& layout, std::span<const Plan> plans, const CommitSpace& space);

// A slack that suffices for flushes of some tens of milliseconds on a fast disk, and never more than the state.
std::int64_t default_commit_slack_bytes(const Layout& layout);

}  // namespace spillway
