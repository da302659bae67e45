#include "telemetry/step_totals.h"

#include <algorithm>
#include <numeric>

namespace spillway {
namespace {

// Phases that are no part of a step (evaluate, generate) have none.
std::size_t phase_in_step(std::string_view name) {
  for (std::size_t p = 0; p + 1 < step_phase_count; ++p) {
    if (name_of(static_cast<StepPhase>(p)) == name) return p;
  }
  return step_phase_count;
}

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// The first of a link's causes, which are by MemoryTag.
WaitCause weights_over(EventLane lane) {
  switch (lane) {
    case EventLane::read: return WaitCause::read_weights;
    case EventLane::up: return WaitCause::up_weights;
    case EventLane::down: return WaitCause::down_weights;
    default: return WaitCause::write_weights;
  }
}

}  // namespace

// The bundle of a move that an older run of a plan left under way is not known: it counts as activations.
WaitCause cause_of(const Catalog& catalog, const Event& wait) {
  if (wait.lane == EventLane::update) return WaitCause::update;
  const CatalogBundle* bundle = catalog.bundle(wait.subject);
  const MemoryTag tag = bundle == nullptr ? MemoryTag::activations : std::min(bundle->tag, MemoryTag::activations);
  return static_cast<WaitCause>(static_cast<std::size_t>(weights_over(wait.lane)) + static_cast<std::size_t>(tag));
}

void StepTotalsSink::take(std::span<const Event> events, std::uint64_t) {
  const std::lock_guard lock(mutex_);
  for (const Event& event : events) take(event);
}

void StepTotalsSink::take(const Event& event) {
  memory_.take(event);
  note_memory(EventMemory::host);
  note_memory(EventMemory::device);
  if (event.kind == EventKind::plan_begin) mark_ns_ = event.time_ns;
  if (event.kind == EventKind::wait_begin) wait_ns_ = event.time_ns;
  if (event.kind == EventKind::wait_end) {
    totals_.wait_seconds[static_cast<std::size_t>(cause_of(catalog_, event))] += seconds(event.time_ns - wait_ns_);
  }
  if (event.kind == EventKind::op_end) {
    const std::size_t phase = phase_in_step(catalog_.phase_of(event.plan, event.subject));
    if (phase < step_phase_count) totals_.phase_seconds[phase] += seconds(event.time_ns - mark_ns_);
    mark_ns_ = event.time_ns;
  }
}

void StepTotalsSink::note_memory(EventMemory memory) {
  std::int64_t& peak = peak_bytes_[static_cast<std::size_t>(memory)];
  if (memory_.used_bytes(memory) <= peak || !memory_.is_sound(memory)) return;
  peak = memory_.used_bytes(memory);
  (memory == EventMemory::host ? totals_.memory_bytes : totals_.device_memory_bytes) = memory_.bytes(memory);
}

StepTotals StepTotalsSink::finish(double step_seconds) {
  const std::lock_guard lock(mutex_);
  double in_plan = 0;
  for (std::size_t p = 0; p + 1 < step_phase_count; ++p) in_plan += totals_.phase_seconds[p];
  totals_.phase_seconds[step_phase_count - 1] = std::max(0.0, step_seconds - in_plan);
  last_ = totals_;
  totals_ = {};
  totals_.memory_bytes = memory_.bytes();
  totals_.device_memory_bytes = memory_.bytes(EventMemory::device);
  for (const EventMemory memory : {EventMemory::host, EventMemory::device}) {
    peak_bytes_[static_cast<std::size_t>(memory)] = memory_.is_sound(memory) ? memory_.used_bytes(memory) : -1;
  }
  return last_;
}

std::array<std::int64_t, memory_tag_count> StepTotalsSink::memory_bytes(EventMemory memory) const {
  const std::lock_guard lock(mutex_);
  return memory_.bytes(memory);
}

std::pair<WaitCause, double> StepTotalsSink::largest_wait() const {
  const std::lock_guard lock(mutex_);
  const auto& waits = last_.wait_seconds;
  const auto largest = std::max_element(waits.begin(), waits.end());
  return {static_cast<WaitCause>(largest - waits.begin()), *largest};
}

}  // namespace spillway
