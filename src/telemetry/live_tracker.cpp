#include "telemetry/live_tracker.h"

#include <algorithm>

#include "base/error.h"

namespace spillway {
namespace {

constexpr std::int64_t rate_window_ns = 2'000'000'000;

double seconds_between(std::int64_t from_ns, std::int64_t to_ns) {
  return static_cast<double>(std::max<std::int64_t>(0, to_ns - from_ns)) * 1e-9;
}

}  // namespace

void LiveTracker::take(std::span<const Event> events, std::uint64_t) {
  const std::lock_guard lock(mutex_);
  for (const Event& event : events) take(event);
}

void LiveTracker::take(const Event& e) {
  switch (e.kind) {
    case EventKind::phase_begin: phase_ = static_cast<RunPhase>(e.subject); break;
    case EventKind::phase_end: phase_ = RunPhase::train; break;
    case EventKind::step_begin:
      step_ = e.step;
      step_ns_ = e.time_ns;
      ops_done_ = 0;
      break;
    case EventKind::step_end: step_ns_ = 0; break;
    case EventKind::plan_begin: {
      const CatalogPlan* plan = catalog_.plan(e.plan);
      ops_ =
          plan == nullptr ? 0 : std::count_if(plan->instrs.begin(), plan->instrs.end(), [](const CatalogInstr& instr) {
            return instr.lane == EventLane::compute;
          });
      ops_done_ = 0;
      break;
    }
    case EventKind::op_begin: op_ = e; break;
    case EventKind::op_end:
      last_op_ = e;
      op_ = {};
      ++ops_done_;
      break;
    case EventKind::wait_begin: wait_ = e; break;
    case EventKind::wait_end: wait_ = {}; break;
    case EventKind::move_complete:
      moved_.push_back(e);
      while (moved_.front().time_ns < e.time_ns - rate_window_ns) moved_.pop_front();
      break;
    default: break;
  }
  if (e.kind < EventKind::move_submit) last_ns_ = e.time_ns;
}

double LiveTracker::rate(EventLane lane, std::int64_t now_ns) const {
  double bytes = 0;
  for (const Event& move : moved_) {
    if (move.lane == lane && moves_bytes(move) && move.time_ns >= now_ns - rate_window_ns)
      bytes += static_cast<double>(move.value);
  }
  return bytes / (static_cast<double>(rate_window_ns) * 1e-9);
}

void LiveTracker::tell(LiveStatus& status, std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  status.phase = phase_;
  status.step = step_;
  status.step_seconds = step_ns_ == 0 ? 0 : seconds_between(step_ns_, now_ns);
  status.share_of_step = ops_ == 0 ? 0 : std::min(1.0, static_cast<double>(ops_done_) / static_cast<double>(ops_));
  const Event& op = op_.kind == EventKind::none ? last_op_ : op_;
  const CatalogOp* of = op.kind == EventKind::none ? nullptr : catalog_.op(op.plan, op.subject);
  status.part = of == nullptr ? std::string() : describe(catalog_, *of);
  status.read_bytes_per_second = rate(EventLane::read, now_ns);
  status.write_bytes_per_second = rate(EventLane::write, now_ns);
  status.up_bytes_per_second = rate(EventLane::up, now_ns);
  status.down_bytes_per_second = rate(EventLane::down, now_ns);
  if (wait_.kind == EventKind::wait_begin) {
    status.waits_for = catalog_.describe_move(wait_.lane, wait_.subject);
    status.waited_seconds = seconds_between(wait_.time_ns, now_ns);
  }
}

std::string LiveTracker::doing(std::int64_t now_ns) const {
  const std::lock_guard lock(mutex_);
  if (wait_.kind == EventKind::wait_begin)
    return fmt::format("computing waits for {}, {:.1f} s by now", catalog_.describe_move(wait_.lane, wait_.subject),
                       seconds_between(wait_.time_ns, now_ns));
  if (op_.kind == EventKind::op_begin)
    return fmt::format("computing {}, {:.1f} s by now", catalog_.describe_op(op_.plan, op_.subject),
                       seconds_between(op_.time_ns, now_ns));
  return fmt::format("no op is under way, for {:.1f} s", seconds_between(last_ns_, now_ns));
}

}  // namespace spillway
