// Programs, layout and plans as sinks of events know them, and a simulated run as events.
#pragma once

#include <vector>

#include "session/planned_programs.h"
#include "sim/simulate.h"
#include "telemetry/catalog.h"
#include "telemetry/event_recorder.h"
#include "telemetry/trace.h"

namespace spillway {

// Of all plans, in their order. `names` says what each plan is for ("train", "evaluate").
Catalog catalog_of(const PlannedPrograms& planned, const State& state, std::span<const std::string_view> names);

// What each bundle of a layout holds.
std::vector<MemoryTag> bundle_tags(const PlannedPrograms& planned, const State& state);

// The events of `plan`, number `number` of the catalog, as one step in virtual time.
std::vector<Event> events_of(const Plan& plan, std::uint8_t number, const Layout& layout, const Timeline& timeline);

// Throws DeviceError; the file is whole or not there.
void write_trace_file(const std::filesystem::path& path, const Catalog& catalog, const VisitEvents& events,
                      const TraceOptions& options);

}  // namespace spillway
