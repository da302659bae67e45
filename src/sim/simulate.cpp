#include "sim/simulate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/page_places.h"
#include "plan/flat.h"
#include "plan/trail.h"

namespace spillway {
namespace {

constexpr std::size_t compute = static_cast<std::size_t>(LaneId::compute);
constexpr std::size_t read = static_cast<std::size_t>(LaneId::read);
constexpr std::size_t write = static_cast<std::size_t>(LaneId::write);
constexpr std::size_t up = static_cast<std::size_t>(LaneId::up);
constexpr std::size_t down = static_cast<std::size_t>(LaneId::down);
constexpr std::size_t update = static_cast<std::size_t>(LaneId::update);
constexpr double for_ever = std::numeric_limits<double>::infinity();
constexpr std::int64_t moved_at_once = 2 * mib;  // for the cost of a page; what is larger has it again
constexpr int most_runs = 8;                     // until a step's time settles
constexpr double settled = 1e-3;

std::size_t most_in_flight(std::size_t lane) {
  if (lane == compute || lane >= up) return 1;
  return lane == read ? 16 : static_cast<std::size_t>(max_writes_in_flight);
}

// An instruction that was started: first what overlaps with others, then its turn in the lane.
struct Active {
  InstrId instr = InstrId::none;
  std::size_t run = 0;
  double ready = 0;  // when what overlaps is over
  double left = 0;   // seconds of computing, or bytes, or seconds of a measured move
};

// Pages that a device's driver maps, one at several places perhaps.
class MappedPages {
 public:
  // At places in a row. How many have to be mapped anew.
  std::int64_t map(std::span<const PageId> pages, std::int64_t place) {
    std::int64_t mapped = 0;
    for (const PageId page : pages) {
      const auto [found, is_new] = at_.try_emplace(place++, page);
      if (std::exchange(found->second, page) != page || is_new) ++mapped;
    }
    return mapped;
  }

 private:
  std::unordered_map<std::int64_t, PageId> at_;
};

class Simulation {
 public:
  Simulation(const Layout& layout, std::int64_t pages)
      : layout_(layout),
        trail_(layout.bundles.size(), static_cast<std::size_t>(pages)),
        places_(pages, 2 * layout.address_bytes / layout.page_bytes) {}

  // Lets a plan follow the last one and runs until its ops are done; moves may still be under way.
  void run(const PlannedRun& planned, const PlanWaits& waits) {
    runs_.push_back({planned, enter(planned, waits), {}, now_});
    Run& run = runs_.back();
    run.timeline.starts.resize(planned.plan->instrs.size());
    run.timeline.ends.resize(planned.plan->instrs.size());
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      for (const InstrId id : planned.plan->lanes[lane]) waiting_[lane].push_back({runs_.size() - 1, id});
    }
    const auto ops = static_cast<std::int64_t>(planned.plan->lanes[compute].size());
    const std::int64_t end = run.following.base[compute] + ops;
    const std::int64_t updated = run.following.base[update] + std::ssize(planned.plan->lanes[update]);
    while (done_[compute] < end || done_[update] < updated) {
      SPILLWAY_CHECK(advance(), "a plan waits for ever: {} of {} ops done", done_[compute], end);
    }
    runs_.back().timeline.seconds = now_ - runs_.back().begin;
    runs_.back().timeline.stalled_seconds += now_ - std::max(compute_free_, runs_.back().begin);
  }

  // Until nothing is under way.
  std::vector<Timeline> finish() {
    while (advance()) {
    }
    for (const auto& lane : waiting_) SPILLWAY_CHECK(lane.empty(), "{} instructions wait for ever", lane.size());
    std::vector<Timeline> timelines;
    for (Run& run : runs_) timelines.push_back(std::move(run.timeline));
    return timelines;
  }

  double last_seconds() const { return runs_.back().timeline.seconds; }
  // Of moves that wait or are under way: bytes, or seconds of measured moves.
  double work_left() const {
    double work = 0;
    for (std::size_t lane = compute + 1; lane < lane_count; ++lane) {
      for (const Active& active : active_[lane]) work += active.left;
      for (const Waiting& waiting : waiting_[lane]) work += work_of(waiting);
    }
    return work;
  }

 private:
  struct Run {
    PlannedRun planned;
    Following following;
    Timeline timeline;
    double begin = 0;
  };
  struct Waiting {
    std::size_t run = 0;
    InstrId instr = InstrId::none;
  };

  Following enter(const PlannedRun& planned, const PlanWaits& waits) {
    const Plan& plan = waits.plan();
    std::vector<std::vector<PageId>> held;
    for (const StayId id : plan.entry.stays) {
      const Stay& stay = plan.stays[index_of(id)];
      if (!runs_.empty()) {
        const auto found = in_memory_.find(residence_of(stay));
        SPILLWAY_CHECK(found != in_memory_.end(), "bundle {} is not in memory", index_of(stay.bundle));
        held.push_back(found->second);
        continue;
      }
      held.push_back(stay.pages);
      attach(stay.pages, stay, *planned.rates);
    }
    Following following = trail_.follow(waits, held);
    in_memory_.clear();
    for (const StayId id : plan.exit.stays) {
      const Stay& stay = plan.stays[index_of(id)];
      for (const PageId page : stay.pages) in_memory_[residence_of(stay)].push_back(following.physical[index_of(page)]);
    }
    return following;
  }

  // Seconds of putting a stay's pages next to each other. The addresses of the device come after those of the host.
  double attach(std::span<const PageId> pages, const Stay& stay, const StepRates& rates) {
    const bool on_device = stay.memory == MemoryId::device;
    const std::int64_t address =
        (on_device ? layout_.address_bytes : 0) + layout_.bundles[index_of(stay.bundle)].address;
    if (on_device && rates.link.map_seconds > 0) {
      return rates.link.map_seconds * static_cast<double>(mapped_.map(pages, address / layout_.page_bytes));
    }
    std::int64_t stretches = 0;
    for (const PageMove& move :
         is_flat(pages) ? places_.send_home(pages) : places_.attach(pages, address / layout_.page_bytes)) {
      stretches += divide_up(move.pages * layout_.page_bytes, moved_at_once);
    }
    return rates.attach_seconds * static_cast<double>(stretches);
  }

  const StepRates& rates_of(const Active& active) const { return *runs_[active.run].planned.rates; }
  const Instr& instr_of(const Active& active) const {
    return runs_[active.run].planned.plan->instrs[index_of(active.instr)];
  }

  bool reached(const LaneClock& clock) const {
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      if (done_[lane] < clock[lane]) return false;
    }
    return true;
  }

  void start_lane(std::size_t lane) {
    while (!waiting_[lane].empty() && active_[lane].size() < most_in_flight(lane)) {
      const Waiting next = waiting_[lane].front();
      Run& run = runs_[next.run];
      std::optional<LaneClock>& wait = next_waits_[lane];
      if (!wait) wait = run.following.wait_of(next.instr);
      if (!reached(*wait)) return;
      wait.reset();
      waiting_[lane].pop_front();
      start(lane, next, run);
    }
  }

  void start(std::size_t lane, const Waiting& next, Run& run) {
    const StepRates& rates = *run.planned.rates;
    const Plan& plan = *run.planned.plan;
    const Instr& instr = plan.instrs[index_of(next.instr)];
    const bool waited = now_ > (lane == compute ? compute_free_ : run.begin);
    double overlapped = waited && instr.kind != Instr::Kind::commit ? rates.wake_seconds : 0;
    for (const StayId id : instr.begins) {
      const Stay& stay = plan.stays[index_of(id)];
      std::vector<PageId> pages;
      for (const PageId page : stay.pages) pages.push_back(run.following.physical[index_of(page)]);
      const double attaching = attach(pages, stay, rates);
      run.timeline.attach_seconds += attaching;
      overlapped += attaching;
    }
    Active active{next.instr, next.run, 0, 0};
    if (lane == compute) {
      active.left = rates.op_seconds[index_of(instr.op)];
      run.timeline.compute_seconds += active.left;
      run.timeline.stalled_seconds += now_ - std::max(compute_free_, run.begin);
    } else if (lane == update) {
      active.left = (rates.host_seconds.empty() ? rates.op_seconds : rates.host_seconds)[index_of(instr.op)];
      run.timeline.update_seconds += active.left;
    } else {
      active.left = work_of(next);
      const bool copies = lane == up || lane == down;
      if (rates.move_seconds.empty() && active.left > 0) {
        overlapped += copies ? rates.link.copy_seconds : rates.request_seconds;
      }
    }
    active.ready = now_ + overlapped;
    run.timeline.starts[index_of(next.instr)] = now_ - run.begin;
    active_[lane].push_back(active);
  }

  // Of a move; a commit has none.
  double work_of(const Waiting& waiting) const {
    const PlannedRun& planned = runs_[waiting.run].planned;
    const Instr& instr = planned.plan->instrs[index_of(waiting.instr)];
    if (instr.stays.empty() || instr.kind == Instr::Kind::run) return 0;
    if (!planned.rates->move_seconds.empty()) return planned.rates->move_seconds[index_of(waiting.instr)];
    const BundleId bundle = planned.plan->stays[index_of(instr.stays.front())].bundle;
    return static_cast<double>(layout_.bundles[index_of(bundle)].bytes);
  }

  bool serves(std::size_t lane) const { return !active_[lane].empty() && active_[lane].front().ready <= now_; }

  // A direct move goes over the disk and over the link, whichever is the slower; of the link it has half while a copy
  // goes in its direction.
  double most_of_link(std::size_t lane) const {
    const Active& active = active_[lane].front();
    if (!is_direct(*runs_[active.run].planned.plan, instr_of(active))) return for_ever;
    const LinkRate& link = rates_of(active).link;
    if (lane == read) return link.up_bytes_per_second / (serves(up) ? 2 : 1);
    return link.down_bytes_per_second / (serves(down) ? 2 : 1);
  }

  double disk_rate(std::size_t lane) const {
    const StepRates& rates = rates_of(active_[lane].front());
    const double slowdown = serves(compute) || serves(update) ? rates.disk_slowdown : 1;
    const double alone = lane == read ? rates.read_bytes_per_second : rates.write_bytes_per_second;
    const bool both = serves(read) && serves(write);
    return std::min((both ? rates.mixed_bytes_per_second / 2 : alone) / slowdown, most_of_link(lane));
  }

  // What a direct move in its direction leaves of the link.
  double copy_rate(std::size_t lane) const {
    const LinkRate& link = rates_of(active_[lane].front()).link;
    const std::size_t beside = lane == up ? read : write;
    const bool shares = serves(beside) && most_of_link(beside) < for_ever;
    return (lane == up ? link.up_bytes_per_second : link.down_bytes_per_second) - (shares ? disk_rate(beside) : 0);
  }

  double rate(std::size_t lane) const {
    const StepRates& rates = rates_of(active_[lane].front());
    if (runs_ops(static_cast<LaneId>(lane))) {
      const bool shares = rates.shares_processor && serves(compute) && serves(update);
      return (shares ? 0.5 : 1) / (serves(read) || serves(write) ? rates.compute_slowdown : 1);
    }
    if (!rates.move_seconds.empty()) return 1;
    return lane == up || lane == down ? copy_rate(lane) : disk_rate(lane);
  }

  // To the next end of an instruction or of what precedes one. False when nothing is under way and nothing can start.
  bool advance() {
    for (std::size_t lane = 0; lane < lane_count; ++lane) start_lane(lane);
    std::array<double, lane_count> speed{};
    std::array<double, lane_count> takes{};
    double step = for_ever;
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      if (active_[lane].empty()) continue;
      const Active& first = active_[lane].front();
      if (serves(lane)) {
        speed[lane] = rate(lane);
        takes[lane] = first.left / speed[lane];
      } else {
        takes[lane] = first.ready - now_;
      }
      step = std::min(step, takes[lane]);
    }
    if (step == for_ever) return false;
    const double then = now_ + step;
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      if (active_[lane].empty()) continue;
      Active& first = active_[lane].front();
      if (speed[lane] == 0) {
        if (takes[lane] <= step) first.ready = then;
        continue;
      }
      note_busy(lane, first, step);
      if (takes[lane] > step) {
        first.left -= step * speed[lane];
        continue;
      }
      Run& run = runs_[first.run];
      run.timeline.ends[index_of(first.instr)] = then - run.begin;
      if (lane == compute) compute_free_ = then;
      ++done_[lane];
      active_[lane].pop_front();
    }
    now_ = then;
    return true;
  }

  void note_busy(std::size_t lane, const Active& active, double seconds) {
    if (runs_ops(static_cast<LaneId>(lane))) return;
    Timeline& timeline = runs_[active.run].timeline;
    const std::array<double*, lane_count> busy{
        nullptr, &timeline.read_seconds, &timeline.write_seconds, &timeline.up_seconds, &timeline.down_seconds,
        nullptr};
    *busy[lane] += seconds;
  }

  const Layout& layout_;
  Trail trail_;
  PagePlaces places_;  // of the host, and of a device in its memory
  MappedPages mapped_;
  std::deque<Run> runs_;
  std::map<Residence, std::vector<PageId>> in_memory_;
  std::array<std::deque<Waiting>, lane_count> waiting_;
  std::array<std::optional<LaneClock>, lane_count> next_waits_;  // what the first that waits waits for, once looked up
  std::array<std::deque<Active>, lane_count> active_;
  LaneClock done_{};
  double now_ = 0;
  double compute_free_ = 0;
};

// With all bytes in the best order: together as far as both directions have some, or one after the other.
double least_disk_seconds(const Plan& plan, const StepRates& rates) {
  const auto reads = static_cast<double>(plan.traffic.read_bytes);
  const auto writes = static_cast<double>(plan.traffic.write_bytes);
  if (reads + writes == 0) return 0;
  const auto over = [](double bytes, double rate) { return bytes > 0 ? bytes / rate : 0; };
  const double apart = over(reads, rates.read_bytes_per_second) + over(writes, rates.write_bytes_per_second);
  const double both = std::min(reads, writes);
  const double together = over(2 * both, rates.mixed_bytes_per_second) +
                          over(reads - both, rates.read_bytes_per_second) +
                          over(writes - both, rates.write_bytes_per_second);
  return std::min(apart, together);
}

// Of the moves of a lane, as they were measured.
double measured_seconds(const Plan& plan, const StepRates& rates, LaneId lane) {
  double sum = 0;
  for (const InstrId id : plan.lanes[static_cast<std::size_t>(lane)]) sum += rates.move_seconds[index_of(id)];
  return sum;
}

double least_link_seconds(const Plan& plan, const LinkRate& link) {
  const auto over = [](std::int64_t bytes, double rate) { return bytes > 0 ? static_cast<double>(bytes) / rate : 0; };
  return std::max(over(plan.up_bytes + plan.direct.read_bytes, link.up_bytes_per_second),
                  over(plan.down_bytes + plan.direct.write_bytes, link.down_bytes_per_second));
}

void note_bounds(const Plan& plan, const StepRates& rates, Timeline& timeline) {
  timeline.repeated_seconds = rates.repeated_seconds;
  if (!rates.move_seconds.empty()) {
    const auto measured = [&](LaneId lane) { return measured_seconds(plan, rates, lane); };
    timeline.disk_seconds = (measured(LaneId::read) + measured(LaneId::write)) / 2;
    timeline.link_seconds = std::max(measured(LaneId::up), measured(LaneId::down));
    return;
  }
  timeline.disk_seconds = least_disk_seconds(plan, rates);
  timeline.link_seconds = least_link_seconds(plan, rates.link);
}

}  // namespace

std::vector<Timeline> simulate_runs(std::span<const PlannedRun> runs, const Layout& layout) {
  std::int64_t pages = 0;
  for (const PlannedRun& run : runs) pages = std::max(pages, run.plan->all_pages());
  std::deque<PlanWaits> waits;
  Simulation simulation(layout, pages);
  for (const PlannedRun& run : runs) {
    const auto known =
        std::find_if(waits.begin(), waits.end(), [&](const PlanWaits& one) { return &one.plan() == run.plan; });
    simulation.run(run, known != waits.end() ? *known : waits.emplace_back(*run.plan, layout));
  }
  std::vector<Timeline> timelines = simulation.finish();
  for (std::size_t i = 0; i < runs.size(); ++i) note_bounds(*runs[i].plan, *runs[i].rates, timelines[i]);
  return timelines;
}

Timeline simulate(const Plan& plan, const Layout& layout, const StepRates& rates) {
  const PlannedRun run{&plan, &rates};
  Timeline timeline = std::move(simulate_runs(std::span(&run, 1), layout).front());
  for (const double end : timeline.ends) timeline.seconds = std::max(timeline.seconds, end);
  return timeline;
}

Timeline simulate_steady(const Plan& plan, const Layout& layout, const StepRates& rates) {
  const PlanWaits waits(plan, layout);
  Simulation simulation(layout, plan.all_pages());
  double before = 0;
  double left_before = 0;
  for (int i = 0; i < most_runs; ++i) {
    simulation.run({&plan, &rates}, waits);
    const double now = simulation.last_seconds();
    const double left = simulation.work_left();
    const double most = settled * static_cast<double>(plan.traffic.read_bytes + plan.traffic.write_bytes +
                                                      plan.up_bytes + plan.down_bytes);
    if (std::fabs(now - before) <= settled * now && std::fabs(left - left_before) <= most) break;
    before = now;
    left_before = left;
  }
  Timeline last = std::move(simulation.finish().back());
  note_bounds(plan, rates, last);
  return last;
}

}  // namespace spillway
