#include "report/whereabouts.h"

#include <algorithm>

namespace spillway {

Whereabouts::Whereabouts(const Catalog& catalog, StepTimeline& timeline)
    : catalog_(catalog),
      timeline_(timeline),
      memory_(catalog),
      layers_(catalog.bundles.size(), no_layer),
      live_bytes_(catalog.bundles.size(), 0),
      away_bytes_(catalog.bundles.size(), 0),
      reads_left_(catalog.bundles.size(), 0),
      written_(catalog.bundles.size(), false) {
  find_layers();
  memory_.on_change([this](EventMemory memory, std::int32_t bundle, std::int64_t bytes) {
    const auto b = static_cast<std::size_t>(bundle);
    live_bytes_[b] += bytes;
    Amounts& changes = memory == EventMemory::host ? memory_changes_ : device_changes_;
    changes[{layers_[b], catalog_.bundles[b].tag}] += bytes;
    const bool kept = catalog_.bundles[b].state || (written_[b] && reads_left_[b] > 0);
    set_away(bundle, live_bytes_[b] == 0 && kept);
  });
  for (std::size_t b = 0; b < catalog.bundles.size(); ++b) {
    if (catalog.bundles[b].state) set_away(static_cast<std::int32_t>(b), true);
  }
}

void Whereabouts::find_layers() {
  std::vector<bool> touched(layers_.size(), false);
  for (std::size_t p = 0; p < catalog_.plans.size(); ++p) {
    const CatalogPlan& plan = catalog_.plans[p];
    for (const CatalogInstr& instr : plan.instrs) {
      const CatalogOp* op =
          instr.lane == EventLane::compute ? catalog_.op(static_cast<std::uint8_t>(p), instr.subject) : nullptr;
      if (op == nullptr) continue;
      for (const std::int32_t stay : instr.stays) {
        const auto b = static_cast<std::size_t>(plan.stays[static_cast<std::size_t>(stay)].bundle);
        if (!touched[b]) layers_[b] = op->layer;
        if (touched[b] && catalog_.bundles[b].state && layers_[b] != op->layer) layers_[b] = no_layer;
        touched[b] = true;
      }
    }
  }
}

void Whereabouts::take(const Event& event, std::int64_t time_ns) {
  if (!begun_ && time_ns >= 0) {
    flush(0, memory_changes_, timeline_.memory);
    flush(0, device_changes_, timeline_.device);
    flush(0, disk_changes_, timeline_.disk);
    begun_ = true;
  }
  if (event.kind == EventKind::plan_begin) begin_run(event);
  if (event.kind == EventKind::move_complete && catalog_.bundle(event.subject) != nullptr) {
    const auto b = static_cast<std::size_t>(event.subject);
    if (event.lane == EventLane::write) written_[b] = true;
    if (event.lane == EventLane::read) --reads_left_[b];
  }
  memory_.take(event);
  if (begun_) note(time_ns);
}

void Whereabouts::begin_run(const Event& event) {
  const CatalogPlan* plan = catalog_.plan(event.plan);
  if (plan == nullptr) return;
  std::fill(reads_left_.begin(), reads_left_.end(), 0);
  std::fill(written_.begin(), written_.end(), false);
  for (const CatalogInstr& instr : plan->instrs) {
    if (instr.lane == EventLane::read && catalog_.bundle(instr.subject) != nullptr)
      ++reads_left_[static_cast<std::size_t>(instr.subject)];
  }
}

void Whereabouts::set_away(std::int32_t bundle, bool away) {
  const auto b = static_cast<std::size_t>(bundle);
  const std::int64_t bytes = away ? catalog_.bundles[b].bytes : 0;
  disk_changes_[{layers_[b], catalog_.bundles[b].tag}] += bytes - away_bytes_[b];
  away_bytes_[b] = bytes;
}

// Where events of two threads raced, memory may for an instant seem to hold more than there is; that instant is passed
// over.
void Whereabouts::note(std::int64_t time_ns) {
  if (!memory_.is_sound(EventMemory::host) || !memory_.is_sound(EventMemory::device)) return;
  flush(time_ns, memory_changes_, timeline_.memory);
  flush(time_ns, device_changes_, timeline_.device);
  flush(time_ns, disk_changes_, timeline_.disk);
}

void Whereabouts::finish(std::int64_t time_ns) { note(time_ns); }

void Whereabouts::flush(std::int64_t time_ns, Amounts& pending, std::vector<TimelineChange>& to) {
  for (const auto& [key, bytes] : pending) {
    if (bytes != 0) to.push_back({time_ns, key.first, key.second, bytes});
  }
  pending.clear();
}

}  // namespace spillway
