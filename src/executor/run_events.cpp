#include "executor/run_events.h"

namespace spillway {

static_assert(static_cast<int>(EventLane::compute) == static_cast<int>(LaneId::compute));
static_assert(static_cast<int>(EventLane::read) == static_cast<int>(LaneId::read));
static_assert(static_cast<int>(EventLane::write) == static_cast<int>(LaneId::write));

EventLane lane_of(LaneId lane) {
  if (lane == LaneId::up) return EventLane::up;
  if (lane == LaneId::update) return EventLane::update;
  return lane == LaneId::down ? EventLane::down : static_cast<EventLane>(lane);
}

void RunEvents::begin(const std::shared_ptr<const Following>& run) {
  if (to_ == nullptr) return;
  before_ = std::move(now_);
  now_ = run;
  steps_[static_cast<std::size_t>(run->number) % steps_.size()] = to_->step();
  to_->plan_begin(tag_of(*run), run->number);
}

RunTag RunEvents::tag_of(const Following& run) const {
  return {steps_[static_cast<std::size_t>(run.number) % steps_.size()].load(std::memory_order_relaxed),
          static_cast<std::uint8_t>(run.waits - plans_.data()), static_cast<std::uint16_t>(run.number)};
}

// Of this run or the one before; older ones are not kept.
RunEvents::Place RunEvents::place_of(std::size_t lane, std::int64_t number) const {
  for (const Following* run : {now_.get(), before_.get()}) {
    if (run == nullptr || number < run->base[lane]) continue;
    const auto& instrs = run->waits->plan().lanes[lane];
    const auto at = static_cast<std::size_t>(number - run->base[lane]);
    return at < instrs.size() ? Place{run, instrs[at]} : Place{};
  }
  return {};
}

BundleId RunEvents::bundle_of(std::size_t lane, std::int64_t number) const {
  const Place place = place_of(lane, number);
  if (place.run == nullptr) return BundleId::none;
  const Plan& plan = place.run->waits->plan();
  const Instr& instr = plan.instrs[index_of(place.instr)];
  return instr.stays.empty() ? BundleId::none : plan.stays[index_of(instr.stays.front())].bundle;
}

// While the next copy of the lane waits, for something other than ops, that is what is waited for.
void RunEvents::look_behind_copies(std::size_t& lane, std::int64_t& number, const LaneClock& done) const {
  for (std::size_t depth = 0; depth < lane_count; ++depth) {
    if (!is_of_link(lane_of(static_cast<LaneId>(lane)))) return;
    const Place next = place_of(lane, done[lane]);
    if (next.run == nullptr) return;
    const LaneClock clock = next.run->wait_of(next.instr);
    std::size_t behind = 1;
    while (behind < lane_count && done[behind] >= clock[behind]) ++behind;
    if (behind == lane_count) return;
    lane = behind;
    number = clock[behind] - 1;
  }
}

void RunEvents::wait_for(const Following& run, InstrId id, const LaneClock& clock, const LaneClock& done) {
  std::size_t lane = 1;
  while (lane < lane_count && done[lane] >= clock[lane]) ++lane;
  if (lane == lane_count) return;
  std::int64_t number = clock[lane] - 1;
  look_behind_copies(lane, number, done);
  const Wait wait{lane, number, bundle_of(lane, number)};
  if (wait == wait_) return;
  end_wait(run, id);
  wait_ = wait;
  to_->wait_begin(tag_of(run), number_of(id), lane_of(static_cast<LaneId>(lane)), number,
                  static_cast<std::int32_t>(wait.bundle));
}

void RunEvents::end_wait(const Following& run, InstrId id) {
  if (wait_.lane == 0) return;
  to_->wait_end(tag_of(run), number_of(id), lane_of(static_cast<LaneId>(wait_.lane)), wait_.number,
                static_cast<std::int32_t>(wait_.bundle));
  wait_ = {};
}

void RunEvents::attach(const Following& run, InstrId id, StayId id_of_stay) {
  const Plan& plan = run.waits->plan();
  const Stay& stay = plan.stays[index_of(id_of_stay)];
  const LaneId lane = plan.instrs[index_of(id)].lane;
  if (lane == LaneId::update) return;  // its thread has no ring
  to_->stay_begin(lane_of(lane), tag_of(run), number_of(id), static_cast<std::int32_t>(stay.bundle),
                  std::ssize(stay.pages) * layout_.page_bytes, static_cast<std::int32_t>(id_of_stay));
}

}  // namespace spillway
