// Where the executor and the run say what happens. Each call is a clock reading and a handful of stores in the ring of
// the calling thread's source: no lock, no allocation, no system call.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "telemetry/event_ring.h"
#include "telemetry/events.h"

namespace spillway {

// Events that the rings hold, by source.
using RingCapacities = std::array<std::int64_t, event_source_count>;

// Room for the events of `steps` steps of Programs with this many ops in all, which copy to and from a device or not.
RingCapacities ring_capacities_for(std::int64_t ops, std::int64_t steps, bool copies = false);

// The heads of the rings, then their events, from one block of memory.
constexpr std::int64_t ring_heads_bytes = static_cast<std::int64_t>(event_source_count * sizeof(EventRing::Head));
std::int64_t ring_bytes_for(const RingCapacities& capacities);

// Which run of which plan an event belongs to.
struct RunTag {
  std::int32_t step = 0;
  std::uint8_t plan = 0;
  std::uint16_t run = 0;
};

// The calls that name a source are for the one thread that is it; op_*, wait_*, step_*, plan_* and phase_* are for the
// compute thread, move_* for the disk thread or, of copies, for the thread of their direction. Stays are begun by the
// thread of their lane.
class EventRecorder {
 public:
  // Over memory of ring_bytes_for(capacities), 64-byte aligned and zero, which outlives it; or over memory of its own.
  EventRecorder(std::byte* memory, const RingCapacities& capacities);
  explicit EventRecorder(const RingCapacities& capacities);
  // Reads rings that another recorder wrote: capacities are in their heads.
  static EventRecorder over(std::byte* memory);

  // The step that runs of a plan begun from now on belong to. Of the compute thread.
  void set_step(std::int32_t step) { step_ = step; }
  std::int32_t step() const { return step_; }

  void phase_begin(RunPhase phase) { host(EventKind::phase_begin, static_cast<std::int32_t>(phase), 0); }
  void phase_end(RunPhase phase) { host(EventKind::phase_end, static_cast<std::int32_t>(phase), 0); }
  void step_begin() { host(EventKind::step_begin, -1, 0); }
  void step_end(double loss);
  void plan_begin(RunTag run, std::int64_t number) { plan_event(EventKind::plan_begin, run, number); }
  void plan_end(RunTag run, std::int64_t number) { plan_event(EventKind::plan_end, run, number); }

  void op_begin(RunTag run, std::int32_t instr, std::int32_t op) { op_event(EventKind::op_begin, run, instr, op); }
  void op_end(RunTag run, std::int32_t instr, std::int32_t op) { op_event(EventKind::op_end, run, instr, op); }
  // `instr` waits for move `number` of `lane`, of `bundle`.
  void wait_begin(RunTag run, std::int32_t instr, EventLane lane, std::int64_t number, std::int32_t bundle) {
    wait_event(EventKind::wait_begin, run, instr, lane, number, bundle);
  }
  void wait_end(RunTag run, std::int32_t instr, EventLane lane, std::int64_t number, std::int32_t bundle) {
    wait_event(EventKind::wait_end, run, instr, lane, number, bundle);
  }
  void move_submit(RunTag run, std::int32_t instr, EventLane lane, std::int32_t bundle, std::int64_t bytes,
                   std::uint8_t disk, std::int32_t under_way) {
    moved(EventKind::move_submit, run, instr, lane, bundle, bytes, disk, under_way);
  }
  void move_complete(RunTag run, std::int32_t instr, EventLane lane, std::int32_t bundle, std::int64_t bytes,
                     std::uint8_t disk, std::int64_t number) {
    moved(EventKind::move_complete, run, instr, lane, bundle, bytes, disk, static_cast<std::int32_t>(number));
  }
  void stay_begin(EventLane lane, RunTag run, std::int32_t instr, std::int32_t bundle, std::int64_t bytes,
                  std::int32_t stay) {
    moved(EventKind::stay_begin, run, instr, lane, bundle, bytes, no_disk, stay);
  }

  void commit(EventSource source, std::int32_t step, CommitStage stage, std::int64_t bytes);
  void note(EventSource source, std::int32_t step, NoteKind kind, std::int64_t value);
  void counter(EventSource source, std::int32_t step, CounterKind kind, std::int64_t value);

  const EventRing& ring(EventSource source) const { return rings_[static_cast<std::size_t>(source)]; }

  // For tests of the flight record: every event is first written to this descriptor, in one call. -1: none.
  void set_log(int descriptor) { log_ = descriptor; }

 private:
  EventRecorder() = default;

  void write(EventSource source, const Event& event) {
    if (log_ >= 0) [[unlikely]]
      log(event);
    rings_[static_cast<std::size_t>(source)].write(event);
  }
  void log(const Event& event) const;

  void moved(EventKind kind, RunTag run, std::int32_t instr, EventLane lane, std::int32_t bundle, std::int64_t bytes,
             std::uint8_t disk, std::int32_t other);
  void host(EventKind kind, std::int32_t subject, std::int64_t value) {
    write(EventSource::compute,
          {.time_ns = monotonic_ns(), .value = value, .step = step_, .subject = subject, .kind = kind});
  }
  void plan_event(EventKind kind, RunTag run, std::int64_t number) {
    write(EventSource::compute, {.time_ns = monotonic_ns(),
                                 .value = number,
                                 .step = run.step,
                                 .kind = kind,
                                 .lane = EventLane::compute,
                                 .plan = run.plan,
                                 .run = run.run});
  }
  void op_event(EventKind kind, RunTag run, std::int32_t instr, std::int32_t op) {
    write(EventSource::compute, {.time_ns = monotonic_ns(),
                                 .step = run.step,
                                 .instr = instr,
                                 .subject = op,
                                 .kind = kind,
                                 .lane = EventLane::compute,
                                 .plan = run.plan,
                                 .run = run.run});
  }
  void wait_event(EventKind kind, RunTag run, std::int32_t instr, EventLane lane, std::int64_t number,
                  std::int32_t bundle) {
    write(EventSource::compute, {.time_ns = monotonic_ns(),
                                 .value = number,
                                 .step = run.step,
                                 .instr = instr,
                                 .subject = bundle,
                                 .kind = kind,
                                 .lane = lane,
                                 .plan = run.plan,
                                 .run = run.run});
  }

  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> own_;
  std::array<EventRing, event_source_count> rings_;
  std::int32_t step_ = 0;
  int log_ = -1;
};

// Calls its argument for each event of a run, by time; the same ones each time.
using VisitEvents = std::function<void(const std::function<void(const Event& event)>& visit)>;

// What the rings hold, a few of each at a time, so that it needs no memory for all; the recorder outlives it. Once
// nothing is written any more.
VisitEvents visit_events(const EventRecorder& recorder);
// Of events by time, which outlive it.
VisitEvents visit_events(std::span<const Event> events);

}  // namespace spillway
