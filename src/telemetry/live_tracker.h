// Follows events and says where the run is now: the numbers of LiveStatus that come from events.
#pragma once

#include <deque>
#include <mutex>

#include "telemetry/catalog.h"
#include "telemetry/event_sink.h"
#include "telemetry/live.h"

namespace spillway {

class LiveTracker : public EventSink {
 public:
  explicit LiveTracker(const Catalog& catalog) : catalog_(catalog) {}

  void take(std::span<const Event> events, std::uint64_t lost) override;

  // Sets what events tell; any thread. `now_ns` is on the events' clock.
  void tell(LiveStatus& status, std::int64_t now_ns);

  // What the step under way is about, for a sentence: "computing waits for the read of … (6.00 MiB), 31.2 s by now",
  // "computing linear_dx of backward layer 3 mlp, 20.1 s by now", "no op is under way, for 3.0 s". Any thread.
  std::string doing(std::int64_t now_ns) const;

 private:
  void take(const Event& event);
  double rate(EventLane lane, std::int64_t now_ns) const;

  const Catalog& catalog_;
  mutable std::mutex mutex_;
  RunPhase phase_ = RunPhase::load;
  std::int32_t step_ = 0;
  std::int64_t step_ns_ = 0;  // when it began; 0: none is under way
  std::int64_t ops_ = 0;      // of the run of a plan under way
  std::int64_t ops_done_ = 0;
  Event op_;    // under way; kind none when there is none
  Event wait_;  // likewise
  Event last_op_;
  std::int64_t last_ns_ = 0;  // of the latest event of the compute lane
  std::deque<Event> moved_;   // move_complete of the last window
};

}  // namespace spillway
