#include "telemetry/trace.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>

#include "base/error.h"
#include "telemetry/memory_by_tag.h"
#include "telemetry/trace_json.h"

namespace spillway {
namespace {

constexpr std::size_t most_names = 8;  // of the bundles that an op touches

using Key = std::pair<std::uint16_t, std::int32_t>;  // a run's instruction
using MoveKey = std::pair<EventLane, std::int32_t>;  // a lane's move, by number

TraceTrack track_of(EventLane lane) {
  if (is_of_link(lane)) return lane == EventLane::up ? TraceTrack::up : TraceTrack::down;
  return lane == EventLane::read ? TraceTrack::read : TraceTrack::write;
}

// Writes the slices of each track in the order of time, as they end.
class Tracks {
 public:
  Tracks(const Catalog& catalog, TraceJson& json) : catalog_(catalog), json_(json) {}

  void take(const Event& e) {
    switch (e.kind) {
      case EventKind::step_begin: step_ = e; break;
      case EventKind::step_end:
        if (step_) json_.slice(step_slice(*step_, e));
        step_.reset();
        break;
      case EventKind::op_begin: op_ = e; break;
      case EventKind::op_end:
        if (op_ && op_->instr == e.instr && op_->run == e.run) end_op(*op_, e);
        op_.reset();
        break;
      case EventKind::wait_begin: wait_ = e; break;
      case EventKind::wait_end:
        if (wait_) end_wait(*wait_, e);
        wait_.reset();
        break;
      case EventKind::move_submit: submitted_[{e.run, e.instr}] = e; break;
      case EventKind::move_complete: end_move(e); break;
      case EventKind::commit:
        json_.instant({TraceTrack::commit, e.time_ns,
                       fmt::format("commit of step {}: {}", e.step, name_of(static_cast<CommitStage>(e.subject)))});
        break;
      case EventKind::note:
        json_.instant({TraceTrack::compute, e.time_ns, std::string(name_of(static_cast<NoteKind>(e.subject)))});
        break;
      default: break;
    }
  }

  void finish() { end_phase(); }

 private:
  static TraceSlice step_slice(const Event& begin, const Event& end) {
    const double loss = std::bit_cast<double>(end.value);
    TraceSlice slice{TraceTrack::step, begin.time_ns, end.time_ns, fmt::format("step {}", begin.step), "step", {}};
    slice.arguments = fmt::format("\"step\": {}", begin.step);
    if (std::isfinite(loss)) slice.arguments += fmt::format(", \"loss\": {}", loss);
    return slice;
  }

  void end_op(const Event& begin, const Event& end) {
    const CatalogOp* op = catalog_.op(begin.plan, begin.subject);
    const std::string phase(catalog_.phase_of(begin.plan, begin.subject));
    TraceSlice slice{
        TraceTrack::compute, begin.time_ns, end.time_ns, catalog_.describe_op(begin.plan, begin.subject), phase, {}};
    slice.arguments = fmt::format("\"step\": {}, \"instr\": {}, \"op\": {}, \"phase\": {}", begin.step, begin.instr,
                                  begin.subject, trace_text(phase));
    if (op != nullptr) {
      if (op->layer >= 0) slice.arguments += fmt::format(", \"layer\": {}", op->layer);
      if (op->micro_batch >= 0) slice.arguments += fmt::format(", \"micro_batch\": {}", op->micro_batch);
    }
    slice.arguments += touched(begin);
    json_.slice(slice);
    if (phase_.category != phase) end_phase();
    if (phase_.category.empty()) phase_ = {TraceTrack::phase, begin.time_ns, end.time_ns, phase, phase, {}};
    phase_.end_ns = end.time_ns;
    end_flows(begin);
  }

  // What the op touches: bundles by name, and their bytes.
  std::string touched(const Event& begin) const {
    const CatalogPlan* plan = catalog_.plan(begin.plan);
    if (plan == nullptr || begin.instr < 0 || static_cast<std::size_t>(begin.instr) >= plan->instrs.size()) return {};
    std::int64_t bytes = 0;
    std::string names;
    std::size_t count = 0;
    for (const std::int32_t stay : plan->instrs[static_cast<std::size_t>(begin.instr)].stays) {
      const CatalogBundle* bundle = catalog_.bundle(plan->stays[static_cast<std::size_t>(stay)].bundle);
      if (bundle == nullptr) continue;
      bytes += bundle->bytes;
      if (count++ < most_names) names += (names.empty() ? "" : "; ") + bundle->what;
    }
    if (count > most_names) names += fmt::format("; {} more", count - most_names);
    return fmt::format(", \"bytes\": {}, \"touches\": {}", bytes, trace_text(names));
  }

  void end_wait(const Event& begin, const Event& end) {
    TraceSlice slice{TraceTrack::compute,
                     begin.time_ns,
                     end.time_ns,
                     "wait for " + catalog_.describe_move(begin.lane, begin.subject),
                     "wait",
                     {}};
    slice.arguments = fmt::format("\"step\": {}, \"instr\": {}, \"lane\": {}", begin.step, begin.instr,
                                  trace_text(name_of(begin.lane)));
    json_.slice(slice);
    awaited_.push_back(begin);
  }

  void end_move(const Event& e) {
    const auto found = submitted_.find({e.run, e.instr});
    if (found == submitted_.end()) return;  // begun before the first event we have
    const Event submit = found->second;
    submitted_.erase(found);
    const TraceTrack track = track_of(e.lane);
    std::int64_t& free_ns = free_ns_[static_cast<std::size_t>(e.lane)];
    const std::int64_t begin_ns = std::clamp(free_ns, submit.time_ns, e.time_ns);
    free_ns = e.time_ns;
    const CatalogBundle* bundle = catalog_.bundle(e.subject);
    TraceSlice slice{track,
                     begin_ns,
                     e.time_ns,
                     bundle == nullptr ? catalog_.describe_bundle(e.subject) : bundle->what,
                     bundle == nullptr ? "move" : std::string(name_of(bundle->tag)),
                     {}};
    slice.arguments = fmt::format("\"step\": {}, \"instr\": {}, \"bundle\": {}, \"bytes\": {}, \"queued_ms\": {:.3f}",
                                  e.step, e.instr, e.subject, moves_bytes(e) ? e.value : 0,
                                  static_cast<double>(begin_ns - submit.time_ns) * 1e-6);
    if (e.disk != no_disk) slice.arguments += fmt::format(", \"disk\": {}", e.disk);
    json_.slice(slice);
    if (moves_bytes(e)) json_.move(track, begin_ns, e.time_ns, e.value);
    move_ends_[{e.lane, e.other}] = {begin_ns, e.time_ns};
  }

  // Arrows from the moves that this op waited for.
  void end_flows(const Event& op) {
    for (const Event& wait : awaited_) {
      if (wait.instr != op.instr || wait.run != op.run) continue;
      const auto move = move_ends_.find({wait.lane, static_cast<std::int32_t>(wait.value)});
      if (move == move_ends_.end()) continue;
      json_.flow({track_of(wait.lane), std::max(move->second.first, move->second.second - 1), op.time_ns});
    }
    awaited_.clear();
    // What a later op waits for ends after this one has begun.
    std::erase_if(move_ends_, [&](const auto& move) { return move.second.second < op.time_ns; });
  }

  void end_phase() {
    if (!phase_.category.empty()) json_.slice(phase_);
    phase_ = {};
  }

  const Catalog& catalog_;
  TraceJson& json_;
  std::optional<Event> step_;
  std::optional<Event> op_;
  std::optional<Event> wait_;
  std::vector<Event> awaited_;  // waits since the last op
  std::map<Key, Event> submitted_;
  std::map<MoveKey, std::pair<std::int64_t, std::int64_t>> move_ends_;  // of late: begin and end of its slice
  TraceSlice phase_;
  std::array<std::int64_t, event_lane_count> free_ns_{};  // by lane: the end of its latest move
};

// The number, among those of a run, of the first step that is wanted and whole; and when it or, where no step begins,
// the first event was. Steps alone are counted, since counters may go on while a trace is written.
struct Window {
  std::int64_t first_step = 0;
  std::int64_t begin_ns = 0;
};

Window window_of(const VisitEvents& events, std::int64_t steps) {
  std::deque<Window> last;
  std::int64_t number = 0;
  std::optional<std::int64_t> first_ns;
  events([&](const Event& event) {
    if (!first_ns) first_ns = event.time_ns;
    if (event.kind == EventKind::step_begin) last.push_back({++number, event.time_ns});
    if (std::ssize(last) > steps) last.pop_front();
  });
  return last.empty() ? Window{0, first_ns.value_or(0)} : last.front();
}

}  // namespace

void write_trace(const Catalog& catalog, const VisitEvents& events, const TraceOptions& options,
                 const std::function<void(std::string_view text)>& out) {
  const Window window = window_of(events, options.steps);
  TraceJson json(out, window.begin_ns, options.name, catalog.device_bytes > 0 ? TraceTrack::down : TraceTrack::commit);
  Tracks tracks(catalog, json);
  MemoryByTag memory(catalog);
  std::array<std::int64_t, event_memory_count> used{-1, catalog.device_bytes > 0 ? -1 : 0};
  std::int64_t step = 0;
  events([&](const Event& event) {
    memory.take(event);
    if (event.kind == EventKind::step_begin) ++step;
    if (step < window.first_step) return;
    tracks.take(event);
    for (const EventMemory where : {EventMemory::host, EventMemory::device}) {
      std::int64_t& known = used[static_cast<std::size_t>(where)];
      if (memory.used_bytes(where) == known || !memory.is_sound(where)) continue;
      known = memory.used_bytes(where);
      json.memory(event.time_ns, where, memory.bytes(where));
    }
    if (event.kind == EventKind::counter) {
      json.counter(event.time_ns, name_of(static_cast<CounterKind>(event.subject)), event.value);
    }
  });
  tracks.finish();
  json.end();
}

}  // namespace spillway
