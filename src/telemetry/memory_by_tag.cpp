#include "telemetry/memory_by_tag.h"

#include <algorithm>

namespace spillway {
namespace {

// Whether an event tells of its end: there is none of a commit, nor of a copy between two memories.
bool is_told(const CatalogInstr& instr) { return !instr.stays.empty() && instr.lane < EventLane::up; }

}  // namespace

void MemoryByTag::take(const Event& event) {
  if (event.kind == EventKind::plan_begin) begin_run(event);
  if (event.kind == EventKind::stay_begin) set(event.subject, event.value);
  if (event.kind == EventKind::op_end || event.kind == EventKind::move_complete) end_instr(event);
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
    entry[static_cast<std::size_t>(stay.bundle)] = true;
    set(stay.bundle, stay.bytes);
  }
  for (std::size_t b = 0; b < held_.size(); ++b) {  // of no use any more
    if (held_[b] && !entry[b]) set(static_cast<std::int32_t>(b), 0);
  }
  held_.assign(live_.size(), false);
  for (const CatalogStay& stay : plan->stays) {
    if (stay.at_exit) held_[static_cast<std::size_t>(stay.bundle)] = true;
  }
  runs_[event.run] = std::move(run);
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
    if (--run.touches[static_cast<std::size_t>(id)] == 0 && !stay.at_exit) set(stay.bundle, 0);
  }
  if (--run.instrs_left == 0) runs_.erase(found);
}

void MemoryByTag::set(std::int32_t bundle, std::int64_t bytes) {
  const CatalogBundle* of = catalog_.bundle(bundle);
  if (of == nullptr) return;
  std::int64_t& live = live_[static_cast<std::size_t>(bundle)];
  if (bytes == live) return;
  by_tag_[static_cast<std::size_t>(of->tag)] += bytes - live;
  used_ += bytes - live;
  if (on_change_) on_change_(bundle, bytes - live);
  live = bytes;
}

std::array<std::int64_t, memory_tag_count> MemoryByTag::bytes() const {
  auto bytes = by_tag_;
  bytes[static_cast<std::size_t>(MemoryTag::unused)] = std::max<std::int64_t>(0, catalog_.arena_bytes - used_);
  return bytes;
}

}  // namespace spillway
