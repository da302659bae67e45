#include "telemetry/event_recorder.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"

namespace spillway {
namespace {

constexpr std::int64_t alignment = 64;
// Of the compute lane: two an op, and waits and stays that begin at some. Of the disk: two a move.
constexpr std::int64_t compute_events_per_op = 6;
constexpr std::int64_t disk_events_per_op = 4;
constexpr std::int64_t copy_events_per_op = 4;  // in each direction
constexpr std::int64_t least_events = 1024;
constexpr std::int64_t no_events = 32;         // of a source that has none
constexpr std::int64_t most_events = 1 << 20;  // 40 MiB
constexpr std::int64_t commit_events = 256;
constexpr std::int64_t background_events = 2048;

std::int64_t events_for(std::int64_t ops, std::int64_t steps, std::int64_t per_op) {
  return std::clamp(ops * per_op * steps, least_events, most_events);
}

EventSource source_of(EventLane lane) {
  if (lane == EventLane::compute) return EventSource::compute;
  if (lane == EventLane::up) return EventSource::copy_up;
  return lane == EventLane::down ? EventSource::copy_down : EventSource::disk;
}

// A ring's events one by one.
class RingReader {
 public:
  explicit RingReader(const EventRing& ring) : ring_(&ring) { fill(); }

  bool is_done() const { return at_ == events_.size(); }
  const Event& event() const { return events_[at_]; }
  std::int64_t time_ns() const { return is_done() ? std::numeric_limits<std::int64_t>::max() : event().time_ns; }
  void advance() {
    if (++at_ == events_.size()) fill();
  }

 private:
  static constexpr std::uint64_t read_at_once = 256;

  void fill() {
    events_.clear();
    at_ = 0;
    next_ = ring_->read(next_, events_, read_at_once).next;
  }

  const EventRing* ring_;
  std::uint64_t next_ = 0;
  std::vector<Event> events_;
  std::size_t at_ = 0;
};

}  // namespace

RingCapacities ring_capacities_for(std::int64_t ops, std::int64_t steps, bool copies) {
  const std::int64_t of_copies = copies ? events_for(ops, steps, copy_events_per_op) : no_events;
  return {events_for(ops, steps, compute_events_per_op),
          events_for(ops, steps, disk_events_per_op),
          commit_events,
          background_events,
          of_copies,
          of_copies};
}

std::int64_t ring_bytes_for(const RingCapacities& capacities) {
  std::int64_t bytes = ring_heads_bytes;
  for (const std::int64_t capacity : capacities) bytes += round_up(EventRing::bytes_for(capacity), alignment);
  return bytes;
}

void EventRecorder::Free::operator()(std::byte* memory) const { operator delete (memory, std::align_val_t{alignment}); }

EventRecorder::EventRecorder(std::byte* memory, const RingCapacities& capacities) {
  auto* heads = reinterpret_cast<EventRing::Head*>(memory);
  for (std::size_t source = 0; source < event_source_count; ++source) {
    EventRing::Head& head = *new (heads + source) EventRing::Head();
    head.capacity = static_cast<std::uint64_t>(capacities[source]);
    const std::string_view name = name_of(static_cast<EventSource>(source));
    std::copy(name.begin(), name.end(), head.name.begin());
  }
  rings_ = over(memory).rings_;
}

EventRecorder::EventRecorder(const RingCapacities& capacities) {
  const auto bytes = static_cast<std::size_t>(ring_bytes_for(capacities));
  own_.reset(static_cast<std::byte*>(operator new (bytes, std::align_val_t{alignment})));
  std::memset(own_.get(), 0, bytes);
  rings_ = EventRecorder(own_.get(), capacities).rings_;
}

EventRecorder EventRecorder::over(std::byte* memory) {
  EventRecorder recorder;
  auto* heads = reinterpret_cast<EventRing::Head*>(memory);
  std::byte* events = memory + ring_heads_bytes;
  for (std::size_t source = 0; source < event_source_count; ++source) {
    recorder.rings_[source] = EventRing(heads + source, reinterpret_cast<EventRing::Word*>(events));
    events += round_up(EventRing::bytes_for(static_cast<std::int64_t>(heads[source].capacity)), alignment);
  }
  return recorder;
}

void EventRecorder::step_end(double loss) { host(EventKind::step_end, -1, std::bit_cast<std::int64_t>(loss)); }

void EventRecorder::moved(EventKind kind, RunTag run, std::int32_t instr, EventLane lane, std::int32_t bundle,
                          std::int64_t bytes, std::uint8_t disk, std::int32_t other) {
  write(source_of(lane), {.time_ns = monotonic_ns(),
                          .value = bytes,
                          .step = run.step,
                          .instr = instr,
                          .subject = bundle,
                          .other = other,
                          .kind = kind,
                          .lane = lane,
                          .plan = run.plan,
                          .disk = disk,
                          .run = run.run});
}

void EventRecorder::commit(EventSource source, std::int32_t step, CommitStage stage, std::int64_t bytes) {
  write(source, {.time_ns = monotonic_ns(),
                 .value = bytes,
                 .step = step,
                 .subject = static_cast<std::int32_t>(stage),
                 .kind = EventKind::commit,
                 .lane = EventLane::commit});
}

void EventRecorder::note(EventSource source, std::int32_t step, NoteKind kind, std::int64_t value) {
  write(source, {.time_ns = monotonic_ns(),
                 .value = value,
                 .step = step,
                 .subject = static_cast<std::int32_t>(kind),
                 .kind = EventKind::note});
}

void EventRecorder::counter(EventSource source, std::int32_t step, CounterKind kind, std::int64_t value) {
  write(source, {.time_ns = monotonic_ns(),
                 .value = value,
                 .step = step,
                 .subject = static_cast<std::int32_t>(kind),
                 .kind = EventKind::counter});
}

void EventRecorder::log(const Event& event) const {
  const ssize_t written = ::write(log_, &event, sizeof event);
  SPILLWAY_CHECK(written == static_cast<ssize_t>(sizeof event), "the log of events took {} bytes", written);
}

VisitEvents visit_events(const EventRecorder& recorder) {
  return [&recorder](const std::function<void(const Event&)>& visit) {
    std::vector<RingReader> readers;
    for (std::size_t source = 0; source < event_source_count; ++source)
      readers.emplace_back(recorder.ring(static_cast<EventSource>(source)));
    while (true) {
      const auto first = std::min_element(readers.begin(), readers.end(), [](const RingReader& a, const RingReader& b) {
        return a.time_ns() < b.time_ns();
      });
      if (first->is_done()) return;
      visit(first->event());
      first->advance();
    }
  };
}

VisitEvents visit_events(std::span<const Event> events) {
  return [events](const std::function<void(const Event&)>& visit) {
    for (const Event& event : events) visit(event);
  };
}

}  // namespace spillway
