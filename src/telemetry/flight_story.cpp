// What a flight record says, in words.
#include <fmt/chrono.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"
#include "telemetry/flight_record.h"

namespace spillway {
namespace {

std::string how_it_ended(const FlightRecord& record) {
  const std::int64_t last_ns = record.events.empty() ? record.start_ns : record.events.back().time_ns;
  const std::time_t wall = static_cast<std::time_t>((record.start_wall_ns + last_ns - record.start_ns) / 1'000'000'000);
  const std::string at = fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(wall));
  if (record.end == FlightEnd::finished) return fmt::format("the run finished; its last event is of {}", at);
  if (record.end == FlightEnd::stopped)
    return fmt::format("the run was stopped, as it was asked to; its last event is of {}", at);
  if (record.end == FlightEnd::failed) return fmt::format("the run ended with an error; its last event is of {}", at);
  if (record.process_alive) return fmt::format("process {} is running; its last event is of {}", record.process, at);
  return fmt::format("the run was ended from outside, by a crash or a kill; its last event is of {}", at);
}

std::string ago(std::int64_t from_ns, std::int64_t to_ns) {
  return fmt::format("{:.3f} s", static_cast<double>(to_ns - from_ns) * 1e-9);
}

void tell_work(const FlightRecord& record, std::vector<std::string>& story) {
  const FlightState state = state_of(record.events);
  const Catalog& names = record.catalog;
  const std::int64_t last_ns = record.events.back().time_ns;
  if (state.last_op.kind == EventKind::op_end) {
    story.push_back(fmt::format("last op finished: {}, in step {}",
                                names.describe_op(state.last_op.plan, state.last_op.subject), state.last_op.step));
  } else {
    story.emplace_back("no op had finished");
  }
  if (state.current_op.kind == EventKind::op_begin) {
    story.push_back(fmt::format("op in progress: {}, for {}",
                                names.describe_op(state.current_op.plan, state.current_op.subject),
                                ago(state.current_op.time_ns, last_ns)));
  }
  if (state.wait.kind == EventKind::wait_begin) {
    story.push_back(fmt::format("computing waited for {}, for {}",
                                names.describe_move(state.wait.lane, state.wait.subject),
                                ago(state.wait.time_ns, last_ns)));
  }
  for (const Event& move : state.moves) {
    story.push_back(fmt::format("move in progress: {}, for {}", names.describe_move(move.lane, move.subject),
                                ago(move.time_ns, last_ns)));
  }
  if (state.moves.empty()) story.emplace_back("no move was in progress");
}

}  // namespace

FlightState state_of(const std::vector<Event>& events) {
  FlightState state;
  for (const Event& e : events) {
    if (e.kind == EventKind::step_begin || e.kind == EventKind::plan_begin) state.step = e.step;
    if (e.kind == EventKind::phase_begin || e.kind == EventKind::phase_end) {
      state.phase = static_cast<RunPhase>(e.subject);
      state.in_phase = e.kind == EventKind::phase_begin;
    }
    if (e.kind == EventKind::op_begin) state.current_op = e;
    if (e.kind == EventKind::op_end) state.last_op = e;
    if (e.kind == EventKind::op_end || e.kind == EventKind::plan_begin) state.current_op = {};
    if (e.kind == EventKind::wait_begin) state.wait = e;
    if (e.kind == EventKind::wait_end || e.kind == EventKind::plan_begin) state.wait = {};
    if (e.kind == EventKind::move_submit) state.moves.push_back(e);
    if (e.kind == EventKind::move_complete) {
      std::erase_if(state.moves, [&](const Event& move) {
        return move.run == e.run && move.instr == e.instr && move.lane == e.lane;
      });
    }
  }
  return state;
}

std::vector<std::string> story_of(const FlightRecord& record) {
  std::vector<std::string> story{how_it_ended(record)};
  if (record.total_steps > 0)
    story.push_back(fmt::format("{} of {} steps were done", record.steps_done, record.total_steps));
  const bool ended_itself = record.end == FlightEnd::finished || record.end == FlightEnd::stopped;
  if (!ended_itself && !record.events.empty()) tell_work(record, story);
  if (record.committed_step >= 0) {
    const std::int64_t last_ns = record.events.empty() ? record.committed_ns : record.events.back().time_ns;
    story.push_back(fmt::format("last commit: step {}, {} before that", record.committed_step,
                                ago(record.committed_ns, std::max(last_ns, record.committed_ns))));
  } else {
    story.emplace_back("this run committed nothing");
  }
  return story;
}

}  // namespace spillway
