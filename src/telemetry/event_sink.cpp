#include "telemetry/event_sink.h"

#include <algorithm>

namespace spillway {

void EventReader::attach(EventSink& sink) {
  const std::lock_guard lock(mutex_);
  sinks_.push_back(&sink);
}

void EventReader::read() {
  const std::lock_guard lock(mutex_);
  events_.clear();
  std::uint64_t lost = 0;
  for (std::size_t source = 0; source < event_source_count; ++source) {
    const EventRing::Reading reading = recorder_.ring(static_cast<EventSource>(source)).read(next_[source], events_);
    next_[source] = reading.next;
    lost += reading.lost;
  }
  if (events_.empty() && lost == 0) return;
  std::stable_sort(events_.begin(), events_.end(),
                   [](const Event& a, const Event& b) { return a.time_ns < b.time_ns; });
  for (EventSink* sink : sinks_) sink->take(events_, lost);
}

}  // namespace spillway
