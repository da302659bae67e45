// The rings: what is written is read whole, also while it is written, and by whom comes late.
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "telemetry/event_recorder.h"
#include "telemetry/event_sink.h"

namespace spillway {
namespace {

Event numbered(std::int64_t number) {
  return {.time_ns = number,
          .value = ~number,
          .step = static_cast<std::int32_t>(number),
          .instr = static_cast<std::int32_t>(number * 3),
          .subject = static_cast<std::int32_t>(number * 5),
          .other = static_cast<std::int32_t>(number * 7),
          .kind = EventKind::op_begin};
}

struct Ring {
  explicit Ring(std::uint64_t capacity) : words(capacity * sizeof(Event) / sizeof(EventRing::Word)) {
    head.capacity = capacity;
  }
  EventRing::Head head;
  std::vector<EventRing::Word> words;
  EventRing ring{&head, words.data()};
};

TEST(Events, EveryValueOfTheListHasAName) {
  const auto check = [](auto last, std::size_t count) {
    EXPECT_EQ(static_cast<std::size_t>(last) + 1, count);
    std::set<std::string_view> names;
    for (std::size_t i = 0; i < count; ++i) names.insert(name_of(static_cast<decltype(last)>(i)));
    EXPECT_EQ(names.size(), count);
    EXPECT_FALSE(names.contains(""));
    EXPECT_FALSE(names.contains("unknown"));
    EXPECT_EQ(name_of(static_cast<decltype(last)>(count)), "unknown");
  };
  check(EventSource::copy_down, event_source_count);
  check(EventLane::update, event_lane_count);
  check(EventKind::counter, event_kind_count);
  check(RunPhase::save, run_phase_count);
  check(CommitStage::abandoned, commit_stage_count);
  check(NoteKind::failure, note_kind_count);
  check(CounterKind::system_write_bytes, counter_kind_count);
  check(MemoryTag::unused, memory_tag_count);
}

TEST(EventRing, HandsOutEachEventOnce) {
  Ring of(100);
  std::vector<Event> events;
  std::uint64_t next = 0;
  std::int64_t number = 0;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 50; ++i) of.ring.write(numbered(number++));
    const EventRing::Reading reading = of.ring.read(next, events);
    EXPECT_EQ(reading.lost, 0U);
    next = reading.next;
  }
  ASSERT_EQ(std::ssize(events), number);
  for (std::int64_t i = 0; i < number; ++i) EXPECT_EQ(events[static_cast<std::size_t>(i)], numbered(i));
}

TEST(EventRing, WhoComesLateGetsTheLatestAndIsToldHowManyAreLost) {
  Ring of(100);
  for (std::int64_t i = 0; i < 1000; ++i) of.ring.write(numbered(i));
  std::vector<Event> events;
  const EventRing::Reading reading = of.ring.read(10, events);
  EXPECT_EQ(reading.next, 1000U);
  EXPECT_EQ(reading.lost + events.size(), 990U);
  EXPECT_GE(events.size(), 80U);
  for (std::size_t i = 0; i < events.size(); ++i)
    EXPECT_EQ(events[i], numbered(static_cast<std::int64_t>(1000 - events.size() + i)));
}

TEST(EventRing, WhatIsReadWhileItIsWrittenIsWhole) {
  Ring of(64);
  constexpr std::int64_t count = 200'000;
  std::thread writer([&] {
    for (std::int64_t i = 0; i < count; ++i) of.ring.write(numbered(i));
  });
  std::vector<Event> events;
  std::uint64_t next = 0;
  std::int64_t last = -1;
  while (next < count) {
    events.clear();
    const EventRing::Reading reading = of.ring.read(next, events);
    EXPECT_EQ(next + reading.lost + events.size(), reading.next);
    next = reading.next;
    for (const Event& event : events) {
      ASSERT_EQ(event, numbered(event.time_ns));
      ASSERT_GT(event.time_ns, last);
      last = event.time_ns;
    }
  }
  writer.join();
}

TEST(EventRecorder, EachSourceHasItsRing) {
  EventRecorder recorder(ring_capacities_for(10, 1));
  recorder.set_step(3);
  recorder.step_begin();
  recorder.op_begin({3, 1, 9}, 7, 5);
  recorder.move_submit({3, 1, 9}, 8, EventLane::read, 4, 4096, 0, 2);
  recorder.commit(EventSource::commit, 2, CommitStage::durable, 99);
  recorder.counter(EventSource::background, 3, CounterKind::rss_bytes, 1234);
  std::vector<Event> events;
  for (std::size_t s = 0; s < event_source_count; ++s) recorder.ring(static_cast<EventSource>(s)).read(0, events);
  ASSERT_EQ(events.size(), 5U);
  EXPECT_EQ(events[0].kind, EventKind::step_begin);
  EXPECT_EQ(events[0].step, 3);
  EXPECT_EQ(events[1].subject, 5);
  EXPECT_EQ(events[1].plan, 1);
  EXPECT_EQ(events[1].run, 9);
  EXPECT_EQ(events[2].value, 4096);
  EXPECT_EQ(events[2].lane, EventLane::read);
  EXPECT_EQ(events[2].disk, 0);
  EXPECT_EQ(events[3].subject, static_cast<std::int32_t>(CommitStage::durable));
  EXPECT_EQ(events[4].value, 1234);
  EXPECT_LE(events[0].time_ns, events[1].time_ns);
}

// More than is read of a ring at once, and twice.
TEST(EventRecorder, IsVisitedByTime) {
  constexpr std::int64_t count = 1000;
  EventRecorder recorder(ring_capacities_for(count, 1));
  for (std::int32_t i = 0; i < count; ++i) {
    recorder.op_begin({1, 0, 1}, i, i);
    if (i % 3 == 0) recorder.move_submit({1, 0, 1}, i, EventLane::read, i, 4096, 0, 0);
  }
  const VisitEvents visit = visit_events(recorder);
  for (const int time : {1, 2}) {
    SCOPED_TRACE(time);
    std::int64_t last = 0;
    std::array<std::int32_t, 2> seen{};  // ops, moves
    visit([&](const Event& event) {
      EXPECT_GE(event.time_ns, last);
      last = event.time_ns;
      const bool is_move = event.kind == EventKind::move_submit;
      EXPECT_EQ(event.instr, seen[is_move ? 1 : 0]++ * (is_move ? 3 : 1));
    });
    EXPECT_EQ(seen[0], count);
    EXPECT_EQ(seen[1], 334);
  }
}

TEST(EventReader, EverySinkGetsEveryEventOnce) {
  struct Counting : EventSink {
    void take(std::span<const Event> events, std::uint64_t lost) override {
      seen += events.size();
      EXPECT_EQ(lost, 0U);
    }
    std::size_t seen = 0;
  };
  EventRecorder recorder(ring_capacities_for(10, 1));
  Counting a;
  Counting b;
  EventReader reader(recorder);
  reader.attach(a);
  recorder.step_begin();
  reader.read();
  reader.attach(b);
  recorder.op_begin({}, 0, 0);
  recorder.move_submit({}, 1, EventLane::write, 0, 1, 0, 1);
  reader.read();
  reader.read();
  EXPECT_EQ(a.seen, 3U);
  EXPECT_EQ(b.seen, 2U);
}

}  // namespace
}  // namespace spillway
