#include "plan/commit_slots.h"

#include <algorithm>

#include "base/bytes.h"

namespace spillway {
namespace {

std::int64_t state_pages(const Layout& layout) {
  std::int64_t pages = 0;
  for (std::int32_t b = 0; b < layout.state_bundles; ++b) pages += layout.pages_of(static_cast<BundleId>(b));
  return pages;
}

}  // namespace

CommitSlots commit_slots_for(const Layout& layout, std::span<const Plan> plans, const CommitSpace& space) {
  const std::int64_t state = state_pages(layout);
  // Where nothing moves, commits are all that is written.
  std::int64_t moving = disk_slots_for(layout, plans);
  if (moving == 0) moving = state + max_writes_in_flight * largest_state_pages(layout);
  const std::int64_t manifest = divide_up(space.manifest_bytes, layout.page_bytes);
  CommitSlots result;
  result.reserved = manifest * (space.retained_commits + space.leases + 1);
  result.slots = moving + state * (space.retained_commits + space.leases) +
                 divide_up(space.slack_bytes, layout.page_bytes) + result.reserved;
  return result;
}

std::int64_t default_commit_slack_bytes(const Layout& layout) {
  return std::min(512 * mib, state_pages(layout) * layout.page_bytes);
}

}  // namespace spillway
