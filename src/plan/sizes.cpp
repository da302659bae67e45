// How many pages and slots plans need.
#include <algorithm>

#include "plan/plan.h"

namespace spillway {
namespace {

// Of the state that one of the Programs at least finds or leaves.
std::int64_t used_state_pages(const Layout& layout) {
  std::int64_t pages = 0;
  for (std::size_t b = 0; b < static_cast<std::size_t>(layout.state_bundles); ++b) {
    const bool dead = std::all_of(layout.programs.begin(), layout.programs.end(), [&](const ProgramLayout& program) {
      return program.dead_on_entry[b] && program.dead_on_exit[b];
    });
    if (!dead) pages += layout.pages_of(static_cast<BundleId>(b));
  }
  return pages;
}

bool finds_on_disk(const Plan& plan, const Layout& layout) {
  std::vector<bool> elsewhere = layout.programs[static_cast<std::size_t>(plan.program)].dead_on_entry;
  const std::vector<bool> dead_below = dead_below_on_entry(plan, layout);
  for (std::size_t b = 0; b < dead_below.size(); ++b) elsewhere[b] = elsewhere[b] || dead_below[b];
  for (const StayId id : plan.entry.stays) {
    const Stay& stay = plan.stays[index_of(id)];
    if (stay.memory == MemoryId::host) elsewhere[index_of(stay.bundle)] = true;
  }
  return std::find(elsewhere.begin(), elsewhere.end(), false) != elsewhere.end();
}

}  // namespace

std::string_view name_of(LaneId lane) {
  switch (lane) {
    case LaneId::compute: return "compute";
    case LaneId::read: return "read";
    case LaneId::write: return "write";
    case LaneId::up: return "up";
    case LaneId::down: return "down";
    case LaneId::update: return "update";
  }
  return "?";
}

std::string_view name_of(MemoryId memory) { return memory == MemoryId::device ? "device" : "host"; }

std::int64_t largest_state_pages(const Layout& layout) {
  std::int64_t pages = 0;
  for (std::int32_t b = 0; b < layout.state_bundles; ++b) {
    pages = std::max(pages, layout.pages_of(static_cast<BundleId>(b)));
  }
  return pages;
}

std::int64_t committed_pages(const Layout& layout) {
  std::int64_t pages = 0;
  for (std::int32_t b = 0; b < layout.state_bundles; ++b) {
    if (layout.bundles[static_cast<std::size_t>(b)].committed) pages += layout.pages_of(static_cast<BundleId>(b));
  }
  return pages;
}

std::int64_t visit_pages(const Layout& layout) {
  return std::min<std::int64_t>(visited_bundles, layout.state_bundles) * largest_state_pages(layout);
}

std::int64_t smallest_pages(const Layout& layout) {
  std::int64_t smallest = visit_pages(layout);
  for (const ProgramLayout& program : layout.programs) {
    for (const auto& uses : program.uses) {
      std::int64_t pages = 0;
      for (const Use& use : uses) pages += layout.pages_of(use.bundle);
      smallest = std::max(smallest, pages);
    }
  }
  return smallest;
}

std::int64_t in_memory_pages(const Layout& layout, std::int32_t program) {
  const ProgramLayout& lives = layout.programs[static_cast<std::size_t>(program)];
  std::int64_t found = 0;
  for (std::size_t b = 0; b < lives.dead_on_entry.size(); ++b) {
    found += lives.dead_on_entry[b] ? 0 : layout.pages_of(static_cast<BundleId>(b));
  }
  std::int64_t alive = 0;
  std::int64_t peak = visit_pages(layout);
  for (const auto& uses : lives.uses) {
    for (const Use& use : uses) alive += use.creates ? layout.pages_of(use.bundle) : 0;
    peak = std::max(peak, alive);
    for (const Use& use : uses) alive -= use.ends ? layout.pages_of(use.bundle) : 0;
  }
  return found + std::max(peak, alive + visit_pages(layout));
}

std::int64_t disk_slots_for(const Layout& layout, std::span<const Plan> plans, std::int64_t older_versions) {
  bool moves = false;
  std::int64_t slots = 0;
  std::int64_t held = 0;
  for (const Plan& plan : plans) {
    held = std::max(held, plan.held_slots);
    moves = moves || plan.traffic.read_bytes > 0 || plan.traffic.write_bytes > 0 || finds_on_disk(plan, layout);
    slots += plan.local_slots;
  }
  if (!moves) return 0;
  slots += used_state_pages(layout) + held + older_versions * committed_pages(layout);
  return slots + max_writes_in_flight * largest_state_pages(layout);
}

}  // namespace spillway
