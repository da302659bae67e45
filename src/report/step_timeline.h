// One training step over time, from the events of a flight record: what computing did and waited for, what went over
// the links to the disk and to a device, and what was where. This is the picture of arXiv 2406.10728.
//
// Times are nanoseconds from the begin of the step. What began before it or ended after it is cut there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "telemetry/flight_record.h"
#include "telemetry/record.h"

namespace spillway {

constexpr std::int32_t no_layer = -1;  // the embedding, the head; or of several layers

// A run of ops of one label, with what is between them.
struct TimelineOps {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  StepPhase phase = StepPhase::other;
  std::int32_t layer = no_layer;
  std::string what = {};  // "backward layer 3 mlp"
};

struct TimelineBand {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  StepPhase phase = StepPhase::other;
};

struct TimelineWait {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  WaitCause cause = WaitCause::read_weights;
  StepPhase phase = StepPhase::other;  // of the op that waits
  std::int32_t layer = no_layer;       // likewise
  std::string what = {};               // "the read of model.layers.3.mlp.up_proj.weight (6.00 MiB)"
};

// On a lane a move begins when the disk is free for it, as in a trace. What is under way at once may end at once, so
// rates are those of bytes over the time from submit_ns on.
struct TimelineMove {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t bytes = 0;            // of the part within the step, when it was cut
  EventLane lane = EventLane::read;  // read, write, up or down
  MemoryTag tag = MemoryTag::activations;
  std::int32_t layer = no_layer;
  std::int32_t bundle = -1;
  std::int64_t submit_ns = 0;  // at most begin_ns
};

// Bytes that come or go, of what lies on pages (memory) or on the disk alone.
struct TimelineChange {
  std::int64_t time_ns = 0;
  std::int32_t layer = no_layer;
  MemoryTag tag = MemoryTag::activations;
  std::int64_t bytes = 0;
};

struct StepTimeline {
  std::int32_t step = 0;
  bool whole = true;  // false: the run ended in it
  std::int64_t ns = 0;
  std::int64_t arena_bytes = 0;     // of the host's pages
  std::int64_t device_bytes = 0;    // of a device's; 0: there is none
  std::vector<TimelineBand> bands;  // without gaps, from begin to end
  std::vector<TimelineOps> ops;
  std::vector<TimelineWait> waits;
  std::vector<TimelineMove> moves;     // by begin; those of one lane do not overlap
  std::vector<TimelineChange> memory;  // at time 0 what is there; then changes. With `unused` they are the arena
  std::vector<TimelineChange> device;  // likewise, on the pages of a device
  std::vector<TimelineChange> disk;    // likewise, of bytes that are on the disk and in no memory
  std::vector<std::string> bundles;    // names, by TimelineMove::bundle
};

// The last whole training step of the record; without one, what there is of the step in which the run ended. Nothing
// when there is neither.
std::optional<StepTimeline> timeline_of(const FlightRecord& record);

}  // namespace spillway
