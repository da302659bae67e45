// Events as a trace: the JSON that Perfetto and chrome://tracing open (the "Trace Event Format"). The events of a run
// that was measured and those of one that was simulated give the same tracks, so both open side by side.
//
// Tracks: step, phase, compute, disk read, disk write, commit, and with a device copy up and copy down; counters for
// memory by tag, for the bandwidth of disk and link and for resident memory. On a disk's track a move begins when the
// disk is free for it: moves of a lane are served in turn, and `queued_ms` says how long it lay there before.
#pragma once

#include <functional>
#include <string_view>

#include "telemetry/catalog.h"
#include "telemetry/event_recorder.h"

namespace spillway {

struct TraceOptions {
  std::string name = {};   // of the process in the viewer: "spillway train out, measured"
  std::int64_t steps = 0;  // only the last so many; 0: all there are
};

// Hands the text over in pieces, and goes over the events twice instead of keeping them: what it holds does not grow
// with their number.
void write_trace(const Catalog& catalog, const VisitEvents& events, const TraceOptions& options,
                 const std::function<void(std::string_view text)>& out);

}  // namespace spillway
