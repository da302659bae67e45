#include "sim/simulate.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"

namespace spillway {
namespace {

// What a lane is doing: the instruction under way and how much of it is left, in seconds of computing or in bytes.
struct Active {
  InstrId instr = InstrId::none;
  double left = 0;
};

class Simulation {
 public:
  Simulation(const Plan& plan, const Layout& layout, const StepRates& rates)
      : plan_(plan), layout_(layout), rates_(rates), done_(plan.instrs.size(), false) {
    timeline_.starts.resize(plan.instrs.size());
    timeline_.ends.resize(plan.instrs.size());
  }

  Timeline run() {
    for (;;) {
      for (std::size_t lane = 0; lane < lane_count; ++lane) start(lane);
      if (!any_active()) break;
      advance();
    }
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      SPILLWAY_CHECK(next_[lane] == plan_.lanes[lane].size(), "{} waits for ever at {}",
                     name_of(static_cast<LaneId>(lane)), next_[lane]);
    }
    timeline_.seconds = now_;
    timeline_.disk_seconds = bytes_ / std::max(rates_.mixed_bytes_per_second, 1.0);
    return std::move(timeline_);
  }

 private:
  bool is_disk(std::size_t lane) const { return lane != static_cast<std::size_t>(LaneId::compute); }
  bool any_active() const {
    return std::any_of(active_.begin(), active_.end(), [](const Active& a) { return a.instr != InstrId::none; });
  }

  void start(std::size_t lane) {
    if (active_[lane].instr != InstrId::none || next_[lane] == plan_.lanes[lane].size()) return;
    const InstrId id = plan_.lanes[lane][next_[lane]];
    const Instr& instr = plan_.instrs[index_of(id)];
    if (!std::all_of(instr.after.begin(), instr.after.end(), [&](InstrId wait) { return done_[index_of(wait)]; }))
      return;
    ++next_[lane];
    active_[lane] = {id, work_of(instr)};
    timeline_.starts[index_of(id)] = now_;
    if (is_disk(lane)) {
      bytes_ += active_[lane].left;
    } else {
      timeline_.compute_seconds += active_[lane].left;
      timeline_.stalled_seconds += now_ - compute_free_;
    }
  }

  double work_of(const Instr& instr) const {
    if (instr.kind == Instr::Kind::run) return rates_.op_seconds[index_of(instr.op)];
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
      done_[index_of(active.instr)] = true;
      timeline_.ends[index_of(active.instr)] = now_;
      if (!is_disk(lane)) compute_free_ = now_;
      active.instr = InstrId::none;
    }
  }

  const Plan& plan_;
  const Layout& layout_;
  const StepRates& rates_;
  Timeline timeline_;
  std::vector<bool> done_;
  std::array<Active, lane_count> active_;
  std::array<std::size_t, lane_count> next_{};
  double now_ = 0;
  double compute_free_ = 0;
  double bytes_ = 0;
};

}  // namespace

Timeline simulate(const Plan& plan, const Layout& layout, const StepRates& rates) {
  return Simulation(plan, layout, rates).run();
}

}  // namespace spillway
