// The closed, typed list of what happens in a run, as fixed-size records. Whoever wants to know (the terminal, the
// trace, the metrics, the flight record, a report) reads these; nothing else is recorded and nothing else prints.
//
// An event names its plan by number and its instruction, op or bundle by the plan's own numbers; the Catalog of the run
// (telemetry/catalog.h) says what they stand for. docs/formats.md has the list as a table.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string_view>

namespace spillway {

// Grows by one whenever a kind, a field or its meaning changes.
constexpr std::uint32_t event_version = 2;

// One ring, and one thread that writes it.
enum class EventSource : std::uint8_t { compute, disk, commit, background, copy_up, copy_down };
constexpr std::size_t event_source_count = 6;
std::string_view name_of(EventSource source);

// Lanes of a plan, by the plan's numbers, and what is done beside it. `up` and `down` are copies over the link to a
// device and from it, `update` ops on the host's processor beside it, of which only waits for them are recorded.
enum class EventLane : std::uint8_t { compute, read, write, commit, host, up, down, update };
constexpr std::size_t event_lane_count = 8;
std::string_view name_of(EventLane lane);  // "compute", "disk read", "disk write", "commit", "host", "copy up", …
constexpr bool is_of_link(EventLane lane) { return lane == EventLane::up || lane == EventLane::down; }

enum class EventKind : std::uint8_t {
  none,
  // Of the run, from the thread that calls. `subject` is a RunPhase.
  phase_begin,
  phase_end,
  // `step` says which, from 1. step_end: `value` is the bits of the loss, a double.
  step_begin,
  step_end,
  // One run of a plan by the executor; `value` is its number, from 1. plan_end: the compute lane is done, moves of the
  // tail may still be under way.
  plan_begin,
  plan_end,
  // `subject` is the op.
  op_begin,
  op_end,
  // Instruction `instr` of the compute lane waits: `lane` is the lane waited for, `value` the number of the move in
  // that lane, from 0 and over all runs, and `subject` its bundle. Where the next copy of the link itself waits, for a
  // move of the disk, the wait is for that one. A wait whose cause changes ends and begins anew.
  wait_begin,
  wait_end,
  // `subject` is the bundle, `value` its bytes, `disk` where it goes or comes from. move_submit: `other` is how many
  // moves of the lane are under way, itself included. move_complete: `other` is its number in the lane, from 0 and over
  // all runs. A read of what was never written has `disk` no_disk, its bytes being zero and not read; so has a copy.
  move_submit,
  move_complete,
  // A bundle's pages are put next to each other: `subject` is the bundle, `value` bytes of its pages, `other` the stay,
  // by the plan's number.
  stay_begin,
  // A commit; `subject` is a CommitStage, `value` the bytes it has written so far.
  commit,
  // `subject` is a NoteKind, `value` depends on it.
  note,
  // `subject` is a CounterKind, `value` its value.
  counter,
};
constexpr std::size_t event_kind_count = 17;
std::string_view name_of(EventKind kind);  // "op_begin"

enum class RunPhase : std::int32_t { load, train, evaluate, save };
constexpr std::size_t run_phase_count = 4;
std::string_view name_of(RunPhase phase);

enum class CommitStage : std::int32_t {
  snapshot,   // all versions of the step are on their way or on disk; what they are is fixed
  flushed,    // the data is durable
  manifest,   // so is the manifest
  durable,    // the commit is the newest recoverable state
  abandoned,  // the run goes on without it
};
constexpr std::size_t commit_stage_count = 5;
std::string_view name_of(CommitStage stage);

enum class NoteKind : std::int32_t {
  slow_step,  // value: nanoseconds since the step began
  clipped,    // the step's norm was over the limit
  reverted,   // its updates were made again
  failure,    // the run ends with an error
};
constexpr std::size_t note_kind_count = 4;
std::string_view name_of(NoteKind kind);

enum class CounterKind : std::int32_t {
  rss_bytes,          // resident memory of the process
  system_read_bytes,  // that the kernel says this process caused to be read from storage, /proc/self/io
  system_write_bytes,
};
constexpr std::size_t counter_kind_count = 3;
std::string_view name_of(CounterKind kind);

// What memory is used for. Together with `unused` the tags add up to the pages of the run.
enum class MemoryTag : std::uint8_t { weights, optimizer, gradients, activations, unused };
constexpr std::size_t memory_tag_count = 5;
std::string_view name_of(MemoryTag tag);

// The memories in which pages are: the host's, and that of a device, if there is one.
enum class EventMemory : std::uint8_t { host, device };
constexpr std::size_t event_memory_count = 2;

constexpr std::uint8_t no_disk = 255;

struct Event {
  std::int64_t time_ns = 0;  // CLOCK_MONOTONIC
  std::int64_t value = 0;
  std::int32_t step = 0;    // the step whose work this is, from 1; 0 before the first
  std::int32_t instr = -1;  // of the plan
  std::int32_t subject = -1;
  std::int32_t other = -1;
  EventKind kind = EventKind::none;
  EventLane lane = EventLane::host;
  std::uint8_t plan = 0;        // index in the Catalog
  std::uint8_t disk = no_disk;  // index of the spill directory
  std::uint16_t rank = 0;       // of the process; always 0 on one machine
  std::uint16_t run = 0;        // number of the run of a plan, its low bits

  bool operator==(const Event&) const = default;
};
static_assert(sizeof(Event) == 40);

// Whether a move's bytes are moved: not those of a read of what was never written.
constexpr bool moves_bytes(const Event& move) { return move.disk != no_disk || is_of_link(move.lane); }

// As it lies in rings and files: words that are read and written whole.
using EventWords = std::array<std::uint64_t, sizeof(Event) / sizeof(std::uint64_t)>;

inline std::int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace spillway
