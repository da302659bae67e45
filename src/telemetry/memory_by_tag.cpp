#include "telemetry/memory_by_tag.h"

#include <algorithm>

namespace spillway {
namespace {

// Whether an event tells of its end: there is none of a commit, nor of an update on the host beside a device.
bool is_told(const CatalogInstr& instr) { return !instr.stays.empty() && instr.lane != EventLane::update; }

}  // namespace

void MemoryByTag::take(const Event& event) {
  if (event.kind == EventKind::plan_begin) begin_run(event);
  if (event.kind == EventKind::stay_begin) begin_stay(event);
  if (event.kind == EventKind::op_end || event.kind == EventKind::move_complete) end_instr(event);
}

std::ptrdiff_t MemoryByTag::place_of(EventMemory memory, std::int32_t bundle) const {
  if (catalog_.bundle(bundle) == nullptr) return -1;
  return static_cast<std::ptrdiff_t>(at(memory)) * std::ssize(catalog_.bundles) + bundle;
}

void MemoryByTag::begin_run(const Event& event) {
  const CatalogPlan* plan = catalog_.plan(event.plan);
  if (plan == nullptr) return;
  Run run{event.plan, std::vector<std::int32_t>(plan->stays.size(), 0), 0};
  for (const CatalogInstr& instr : plan->instrs) {
    if (!is_told(instr)) continue;
    ++run.instrs_left;
    for (const std::int32_t stay : instr.stays) ++run.touches[static_cast<std::size_t>(stay)];
  }
  std::vector<bool> entry(live_.size(), false);
  for (const CatalogStay& stay : plan->stays) {
    if (!stay.at_entry) continue;
    entry[static_cast<std::size_t>(place_of(stay.memory, stay.bundle))] = true;
    set(stay.memory, stay.bundle, stay.bytes);
  }
  const std::size_t bundles = catalog_.bundles.size();
  for (std::size_t b = 0; b < held_.size(); ++b) {  // of no use any more
    if (held_[b] && !entry[b]) set(static_cast<EventMemory>(b / bundles), static_cast<std::int32_t>(b % bundles), 0);
  }
  held_.assign(live_.size(), false);
  for (const CatalogStay& stay : plan->stays) {
    if (stay.at_exit) held_[static_cast<std::size_t>(place_of(stay.memory, stay.bundle))] = true;
  }
  runs_[event.run] = std::move(run);
}

void MemoryByTag::begin_stay(const Event& event) {
  const CatalogPlan* plan = catalog_.plan(event.plan);
  if (plan == nullptr || event.other < 0 || event.other >= std::ssize(plan->stays)) return;
  set(plan->stays[static_cast<std::size_t>(event.other)].memory, event.subject, event.value);
}

void MemoryByTag::end_instr(const Event& event) {
  const auto found = runs_.find(event.run);
  if (found == runs_.end()) return;  // it began before the first event we have
  Run& run = found->second;
  const CatalogPlan& plan = *catalog_.plan(run.plan);
  if (event.instr < 0 || static_cast<std::size_t>(event.instr) >= plan.instrs.size()) return;
  const CatalogInstr& instr = plan.instrs[static_cast<std::size_t>(event.instr)];
  if (!is_told(instr)) return;
  for (const std::int32_t id : instr.stays) {
    const CatalogStay& stay = plan.stays[static_cast<std::size_t>(id)];
    if (--run.touches[static_cast<std::size_t>(id)] == 0 && !stay.at_exit) set(stay.memory, stay.bundle, 0);
  }
  if (--run.instrs_left == 0) runs_.erase(found);
}

void MemoryByTag::set(EventMemory memory, std::int32_t bundle, std::int64_t bytes) {
  const std::ptrdiff_t place = place_of(memory, bundle);
  if (place < 0) return;
  std::int64_t& live = live_[static_cast<std::size_t>(place)];
  if (bytes == live) return;
  const std::int64_t grown = bytes - live;
  by_tag_[at(memory)][static_cast<std::size_t>(catalog_.bundle(bundle)->tag)] += grown;
  used_[at(memory)] += grown;
  live = bytes;
  if (on_change_) on_change_(memory, bundle, grown);
}

MemoryByTag::ByTag MemoryByTag::bytes(EventMemory memory) const {
  ByTag bytes = by_tag_[at(memory)];
  bytes[static_cast<std::size_t>(MemoryTag::unused)] =
      std::max<std::int64_t>(0, catalog_.bytes_of(memory) - used_bytes(memory));
  return bytes;
}

}  // namespace spillway
