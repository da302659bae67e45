// What the events of a step add up to.
#pragma once

#include <mutex>

#include "telemetry/event_sink.h"
#include "telemetry/memory_by_tag.h"

namespace spillway {

// What a wait of the compute lane was for: the event that ends it.
WaitCause cause_of(const Catalog& catalog, const Event& wait);

class StepTotalsSink : public EventSink {
 public:
  explicit StepTotalsSink(const Catalog& catalog) : catalog_(catalog), memory_(catalog) {}

  void take(std::span<const Event> events, std::uint64_t lost) override;

  // Of the events since the last call, which took `seconds`. `read_bytes` and `write_bytes` stay the caller's, who
  // knows the traffic of the step's plan. Any thread.
  StepTotals finish(double seconds);
  // What lies on the pages now. Any thread.
  std::array<std::int64_t, memory_tag_count> memory_bytes(EventMemory memory = EventMemory::host) const;
  // Of the latest finished step: the cause with the most seconds, and how many.
  std::pair<WaitCause, double> largest_wait() const;

 private:
  void take(const Event& event);
  void note_memory(EventMemory memory);

  const Catalog& catalog_;
  mutable std::mutex mutex_;
  MemoryByTag memory_;
  StepTotals totals_;
  StepTotals last_;
  std::array<std::int64_t, event_memory_count> peak_bytes_{-1, -1};  // by memory, in this step
  std::int64_t mark_ns_ = 0;                                         // up to here time is accounted for
  std::int64_t wait_ns_ = 0;
};

}  // namespace spillway
