// How a sink of events attaches: it is given to EventReader::attach, and gets every event once.
//
// Whoever wants a line a step and the live numbers instead implements TrainObserver (telemetry/observer.h); whoever
// works on a run that ended reads metrics.jsonl and the flight record (read_flight in telemetry/flight_record.h).
#pragma once

#include <mutex>
#include <span>
#include <vector>

#include "telemetry/event_recorder.h"

namespace spillway {

class EventSink {
 public:
  EventSink() = default;
  EventSink(const EventSink&) = delete;
  EventSink& operator=(const EventSink&) = delete;
  virtual ~EventSink() = default;

  // Events by time. (What two threads did at one instant may come in either order.) Never called by two threads at
  // once, but by the thread that runs the training (at the end of a step) or by the one that watches it (some times a
  // second). `lost` events were overwritten unread. Must be quick and must not throw.
  virtual void take(std::span<const Event> events, std::uint64_t lost) = 0;
};

// Reads the rings of a recorder and hands what is new to every sink.
class EventReader {
 public:
  explicit EventReader(const EventRecorder& recorder) : recorder_(recorder) {}

  // The sink outlives the reader. Any thread.
  void attach(EventSink& sink);
  // Any thread; calls wait for each other.
  void read();

 private:
  const EventRecorder& recorder_;
  std::mutex mutex_;
  std::vector<EventSink*> sinks_;
  std::array<std::uint64_t, event_source_count> next_{};
  std::vector<Event> events_;
};

}  // namespace spillway
