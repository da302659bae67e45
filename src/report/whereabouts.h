// What lies in memory, and what on the disk alone, followed event by event.
#pragma once

#include <map>
#include <vector>

#include "report/step_timeline.h"
#include "telemetry/memory_by_tag.h"

namespace spillway {

// Memories are as telemetry/memory_by_tag.h has them. On the disk alone is state that has no pages; and of what lives
// within a step, what was written and is read again later in it.
class Whereabouts {
 public:
  // Fills memory, device and disk of the timeline. Both outlive this.
  Whereabouts(const Catalog& catalog, StepTimeline& timeline);

  // Every event up to the end of the step, by time. Before time 0 nothing is noted but what is there at 0.
  void take(const Event& event, std::int64_t time_ns);
  void finish(std::int64_t time_ns);

  // That of the ops which touch the bundle; no_layer when they are of several, unless the bundle lives within a step:
  // then that of the first.
  std::int32_t layer_of(std::int32_t bundle) const { return layers_[static_cast<std::size_t>(bundle)]; }

 private:
  using Amounts = std::map<std::pair<std::int32_t, MemoryTag>, std::int64_t>;  // by layer and tag

  void find_layers();
  void begin_run(const Event& event);
  void set_away(std::int32_t bundle, bool away);
  void note(std::int64_t time_ns);
  static void flush(std::int64_t time_ns, Amounts& pending, std::vector<TimelineChange>& to);

  const Catalog& catalog_;
  StepTimeline& timeline_;
  MemoryByTag memory_;
  std::vector<std::int32_t> layers_;      // by bundle
  std::vector<std::int64_t> live_bytes_;  // by bundle: of its pages in all memories
  std::vector<std::int64_t> away_bytes_;  // by bundle: on the disk alone
  std::vector<std::int32_t> reads_left_;  // by bundle, of the latest run of a plan
  std::vector<bool> written_;             // by bundle, in the latest run of a plan
  Amounts memory_changes_;                // since the last note
  Amounts device_changes_;
  Amounts disk_changes_;
  bool begun_ = false;  // time 0 was noted
};

}  // namespace spillway
