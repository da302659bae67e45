#include "sim/simulate.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "base/error.h"
#include "plan/trail.h"

namespace spillway {
namespace {

// What a lane is doing: the instruction under way and how much of it is left, in seconds of computing or in bytes.
struct Active {
  InstrId instr = InstrId::none;
  double left = 0;
  bool last = false;  // of the last step
};

class Simulation {
 public:
  Simulation(const Plan& plan, const Layout& layout, const StepRates& rates)
      : plan_(plan), layout_(layout), rates_(rates), waits_(plan, layout) {}

  // `steps` steps in a row; the timeline is that of the last.
  Timeline run(int steps) {
    lay_out(steps);
    for (;;) {
      for (std::size_t lane = 0; lane < lane_count; ++lane) start(lane);
      if (!any_active()) break;
      advance();
    }
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      SPILLWAY_CHECK(done_[lane] == count(lane) * steps, "{} waits for ever at {}", name_of(static_cast<LaneId>(lane)),
                     done_[lane]);
    }
    timeline_.seconds = steps == 1 ? now_ : compute_free_ - began_;
    timeline_.disk_seconds = bytes_ / steps / std::max(rates_.mixed_bytes_per_second, 1.0);
    return std::move(timeline_);
  }

 private:
  bool is_disk(std::size_t lane) const { return lane != static_cast<std::size_t>(LaneId::compute); }
  bool any_active() const {
    return std::any_of(active_.begin(), active_.end(), [](const Active& a) { return a.instr != InstrId::none; });
  }
  std::int64_t count(std::size_t lane) const { return std::ssize(plan_.lanes[lane]); }

  // Pages go from step to step as in the executor.
  void lay_out(int steps) {
    timeline_.starts.resize(plan_.instrs.size());
    timeline_.ends.resize(plan_.instrs.size());
    Trail trail(layout_.bundles.size(), static_cast<std::size_t>(plan_.pages));
    std::map<BundleId, std::vector<PageId>> held;
    std::int32_t next = 0;
    for (const StayId id : plan_.entry.stays) {
      const Stay& stay = plan_.stays[index_of(id)];
      for (std::size_t i = 0; i < stay.pages.size(); ++i) held[stay.bundle].push_back(static_cast<PageId>(next++));
    }
    for (int step = 0; step < steps; ++step) {
      std::vector<std::vector<PageId>> entry;
      for (const StayId id : plan_.entry.stays) entry.push_back(held.at(plan_.stays[index_of(id)].bundle));
      steps_.push_back(trail.follow(waits_, entry));
      if (step + 1 == steps) break;
      held.clear();
      for (const StayId id : plan_.exit.stays) {
        const Stay& stay = plan_.stays[index_of(id)];
        for (const PageId page : stay.pages) held[stay.bundle].push_back(steps_.back().physical[index_of(page)]);
      }
    }
  }

  bool is_last(std::size_t lane) const { return next_[lane] >= count(lane) * (std::ssize(steps_) - 1); }

  void start(std::size_t lane) {
    if (active_[lane].instr != InstrId::none || next_[lane] == count(lane) * std::ssize(steps_)) return;
    const Following& step = steps_[static_cast<std::size_t>(next_[lane] / count(lane))];
    const InstrId id = plan_.lanes[lane][static_cast<std::size_t>(next_[lane] % count(lane))];
    const LaneClock clock = step.wait_of(id);
    for (std::size_t other = 0; other < lane_count; ++other) {
      if (done_[other] < clock[other]) return;
    }
    // The executor learns of a step when the ops of the one before are done.
    if (done_[0] < step.base[0]) return;
    active_[lane] = {id, work_of(plan_.instrs[index_of(id)]), is_last(lane)};
    ++next_[lane];
    if (is_disk(lane)) {
      bytes_ += active_[lane].left;
    } else if (active_[lane].last) {
      if (timeline_.compute_seconds == 0) began_ = compute_free_;
      timeline_.compute_seconds += active_[lane].left;
      timeline_.stalled_seconds += now_ - compute_free_;
    }
    if (active_[lane].last) timeline_.starts[index_of(id)] = now_ - began_;
  }

  double work_of(const Instr& instr) const {
    if (instr.kind == Instr::Kind::run) return rates_.op_seconds[index_of(instr.op)];
    if (instr.kind == Instr::Kind::commit) return 0;
    const BundleId bundle = plan_.stays[index_of(instr.stays.front())].bundle;
    return static_cast<double>(layout_.bundles[index_of(bundle)].bytes);
  }

  double rate(std::size_t lane) const {
    const bool reads = active_[static_cast<std::size_t>(LaneId::read)].instr != InstrId::none;
    const bool writes = active_[static_cast<std::size_t>(LaneId::write)].instr != InstrId::none;
    if (!is_disk(lane)) return reads || writes ? 1 / rates_.compute_slowdown : 1;
    if (reads && writes) return rates_.mixed_bytes_per_second / 2;
    return reads ? rates_.read_bytes_per_second : rates_.write_bytes_per_second;
  }

  // To the next end of an instruction.
  void advance() {
    std::array<double, lane_count> rates{};
    double step = std::numeric_limits<double>::infinity();
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      if (active_[lane].instr == InstrId::none) continue;
      rates[lane] = rate(lane);
      step = std::min(step, active_[lane].left / rates[lane]);
    }
    now_ += step;
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      Active& active = active_[lane];
      if (active.instr == InstrId::none) continue;
      const bool ends = active.left / rates[lane] <= step;
      active.left -= step * rates[lane];
      if (!ends) continue;
      ++done_[lane];
      if (active.last) timeline_.ends[index_of(active.instr)] = now_ - began_;
      if (!is_disk(lane)) compute_free_ = now_;
      active.instr = InstrId::none;
    }
  }

  const Plan& plan_;
  const Layout& layout_;
  const StepRates& rates_;
  Timeline timeline_;
  PlanWaits waits_;
  std::vector<Following> steps_;
  std::array<Active, lane_count> active_;
  LaneClock next_{};  // started, of all steps
  LaneClock done_{};
  double now_ = 0;
  double began_ = 0;  // the last step
  double compute_free_ = 0;
  double bytes_ = 0;
};

}  // namespace

Timeline simulate(const Plan& plan, const Layout& layout, const StepRates& rates) {
  return Simulation(plan, layout, rates).run(1);
}

Timeline simulate_steady(const Plan& plan, const Layout& layout, const StepRates& rates) {
  constexpr int steps = 4;  // from rest it takes one or two until each is like the one before
  return Simulation(plan, layout, rates).run(steps);
}

}  // namespace spillway
