#include "telemetry/event_sink.h"

namespace spillway {

void EventReader::attach(EventSink& sink) {
  const std::lock_guard lock(mutex_);
  sinks_.push_back(&sink);
}

void EventReader::read() {
  const std::lock_guard lock(mutex_);
  for (std::size_t source = 0; source < event_source_count; ++source) {
    events_.clear();
    const EventRing& ring = recorder_.ring(static_cast<EventSource>(source));
    const EventRing::Reading reading = ring.read(next_[source], events_);
    next_[source] = reading.next;
    if (events_.empty() && reading.lost == 0) continue;
    for (EventSink* sink : sinks_) sink->take(static_cast<EventSource>(source), events_, reading.lost);
  }
}

}  // namespace spillway
