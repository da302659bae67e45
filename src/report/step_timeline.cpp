#include "report/step_timeline.h"

#include <algorithm>
#include <map>
#include <span>

#include "report/whereabouts.h"
#include "telemetry/memory_by_tag.h"
#include "telemetry/step_totals.h"

namespace spillway {
namespace {

StepPhase phase_named(std::string_view name) {
  for (std::size_t p = 0; p + 1 < step_phase_count; ++p) {
    if (name_of(static_cast<StepPhase>(p)) == name) return static_cast<StepPhase>(p);
  }
  return StepPhase::other;
}

// Where the events of the step begin and end.
struct Window {
  std::size_t begin = 0;
  std::size_t end = 0;  // one behind the step_end, or behind the last event
  bool whole = false;
};

// The last whole step with a plan; else the one that has no end. Nothing when no step has begun its plan.
std::optional<Window> last_step(std::span<const Event> events) {
  Window whole;
  Window open;  // end 0: its plan has not begun
  bool in_step = false;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Event& e = events[i];
    if (e.kind == EventKind::step_begin) open = {i, 0, false};
    if (e.kind == EventKind::step_begin) in_step = true;
    if (e.kind == EventKind::plan_begin && in_step) open.end = events.size();
    if (e.kind != EventKind::step_end) continue;
    if (in_step && open.end != 0 && events[open.begin].step == e.step) whole = {open.begin, i + 1, true};
    open = {};
    in_step = false;
  }
  if (whole.whole) return whole;
  if (open.end != 0) return open;
  return std::nullopt;
}

class Reader {
 public:
  Reader(const Catalog& catalog, std::span<const Event> events, const Window& window)
      : catalog_(catalog), events_(events), window_(window), where_(catalog, timeline_) {
    timeline_.step = events[window.begin].step;
    timeline_.whole = window.whole;
    timeline_.arena_bytes = catalog.arena_bytes;
    timeline_.device_bytes = catalog.device_bytes;
    zero_ns_ = events[window.begin].time_ns;
    timeline_.ns = events[window.end - 1].time_ns - zero_ns_;
    band_ns_ = 0;
  }

  StepTimeline read() {
    for (std::size_t i = 0; i < events_.size(); ++i) {
      const bool inside = i >= window_.begin && i < window_.end;
      if (inside) take(events_[i]);
      take_move(events_[i]);
      if (i < window_.end) where_.take(events_[i], events_[i].time_ns - zero_ns_);
    }
    end_ops();
    end_band(timeline_.ns, StepPhase::other);
    where_.finish(timeline_.ns);
    for (const CatalogBundle& bundle : catalog_.bundles) timeline_.bundles.push_back(bundle.what);
    std::stable_sort(timeline_.moves.begin(), timeline_.moves.end(),
                     [](const TimelineMove& a, const TimelineMove& b) { return a.begin_ns < b.begin_ns; });
    return std::move(timeline_);
  }

 private:
  void take(const Event& e) {
    const std::int64_t at_ns = e.time_ns - zero_ns_;
    if (e.kind == EventKind::plan_begin) end_band(at_ns, StepPhase::other);
    if (e.kind == EventKind::op_begin) op_ = e;
    if (e.kind == EventKind::op_end && op_.kind == EventKind::op_begin && op_.instr == e.instr) take_op(e, at_ns);
    if (e.kind == EventKind::op_end) op_ = {};
    if (e.kind == EventKind::wait_begin) wait_ = e;
    if (e.kind == EventKind::wait_end && wait_.kind == EventKind::wait_begin) take_wait(at_ns);
    if (e.kind == EventKind::wait_end) wait_ = {};
  }

  void take_op(const Event& e, std::int64_t at_ns) {
    const CatalogOp* op = catalog_.op(e.plan, e.subject);
    if (op == nullptr) return;
    const StepPhase phase = phase_named(catalog_.phase_of(e.plan, e.subject));
    end_band(at_ns, phase);
    std::string what = describe(catalog_, *op);
    if (what != ops_.what) end_ops();
    if (ops_.what.empty()) ops_ = {op_.time_ns - zero_ns_, at_ns, phase, op->layer, std::move(what)};
    ops_.end_ns = at_ns;
  }

  void end_ops() {
    if (!ops_.what.empty()) timeline_.ops.push_back(std::move(ops_));
    ops_ = {};
  }

  // Time up to here belongs to `phase`: that of an op also covers what was before it, as in telemetry/step_totals.h.
  void end_band(std::int64_t at_ns, StepPhase phase) {
    if (at_ns <= band_ns_) return;
    std::vector<TimelineBand>& bands = timeline_.bands;
    if (!bands.empty() && bands.back().phase == phase) {
      bands.back().end_ns = at_ns;
    } else {
      bands.push_back({band_ns_, at_ns, phase});
    }
    band_ns_ = at_ns;
  }

  void take_wait(std::int64_t at_ns) {
    TimelineWait wait{wait_.time_ns - zero_ns_, at_ns,    cause_of(catalog_, wait_),
                      StepPhase::other,         no_layer, catalog_.describe_move(wait_.lane, wait_.subject)};
    const CatalogPlan* plan = catalog_.plan(wait_.plan);
    if (plan != nullptr && wait_.instr >= 0 && wait_.instr < std::ssize(plan->instrs)) {
      const std::int32_t op = plan->instrs[static_cast<std::size_t>(wait_.instr)].subject;
      wait.phase = phase_named(catalog_.phase_of(wait_.plan, op));
      if (const CatalogOp* of = catalog_.op(wait_.plan, op)) wait.layer = of->layer;
    }
    timeline_.waits.push_back(std::move(wait));
  }

  // Moves of the step before, and those that end after this one, cross its ends: all events are looked at.
  void take_move(const Event& e) {
    if (e.kind == EventKind::move_submit) submitted_[{e.run, e.instr, e.lane}] = e.time_ns;
    if (e.kind != EventKind::move_complete) return;
    const auto found = submitted_.find({e.run, e.instr, e.lane});
    const std::int64_t submit_ns = found == submitted_.end() ? e.time_ns : found->second;
    if (found != submitted_.end()) submitted_.erase(found);
    if (!moves_bytes(e)) return;
    std::int64_t& free_ns = free_ns_[static_cast<std::size_t>(e.lane)];
    const std::int64_t begin_ns = std::clamp(free_ns, std::min(submit_ns, e.time_ns), e.time_ns);
    free_ns = e.time_ns;
    add_move(e, submit_ns - zero_ns_, begin_ns - zero_ns_, e.time_ns - zero_ns_);
  }

  void add_move(const Event& e, std::int64_t submit_ns, std::int64_t begin_ns, std::int64_t end_ns) {
    const CatalogBundle* bundle = catalog_.bundle(e.subject);
    if (bundle == nullptr || end_ns <= 0 || begin_ns >= timeline_.ns) return;
    const std::int64_t from_ns = std::max<std::int64_t>(begin_ns, 0);
    const std::int64_t to_ns = std::min(end_ns, timeline_.ns);
    const double share =
        end_ns > begin_ns ? static_cast<double>(to_ns - from_ns) / static_cast<double>(end_ns - begin_ns) : 1;
    timeline_.moves.push_back({from_ns, to_ns, static_cast<std::int64_t>(static_cast<double>(e.value) * share), e.lane,
                               bundle->tag, where_.layer_of(e.subject), e.subject,
                               std::clamp<std::int64_t>(submit_ns, 0, from_ns)});
  }

  const Catalog& catalog_;
  std::span<const Event> events_;
  Window window_;
  StepTimeline timeline_;
  Whereabouts where_;
  std::int64_t zero_ns_ = 0;
  std::int64_t band_ns_ = 0;  // up to here time is accounted for
  TimelineOps ops_;           // under way; without a name there is none
  Event op_;
  Event wait_;
  std::map<std::tuple<std::uint16_t, std::int32_t, EventLane>, std::int64_t> submitted_;
  std::array<std::int64_t, event_lane_count> free_ns_{};  // by lane: the end of its latest move
};

}  // namespace

std::optional<StepTimeline> timeline_of(const FlightRecord& record) {
  const std::optional<Window> window = last_step(record.events);
  if (!window || record.catalog.plans.empty()) return std::nullopt;
  return Reader(record.catalog, record.events, *window).read();
}

}  // namespace spillway
