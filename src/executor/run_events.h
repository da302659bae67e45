// What the executor says of its runs to a recorder, if there is one. Decides nothing.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "plan/trail.h"
#include "telemetry/event_recorder.h"

namespace spillway {

EventLane lane_of(LaneId lane);

// Calls about ops, waits and runs come from the compute thread; those about moves from the disk thread or, of copies,
// from the thread of their direction, or from the caller's while nothing is under way there.
class RunEvents {
 public:
  // `to` may be null. All outlive this.
  RunEvents(EventRecorder* to, const Layout& layout, const std::vector<PlanWaits>& plans)
      : to_(to), layout_(layout), plans_(plans) {}

  void begin(const std::shared_ptr<const Following>& run);
  void end(const Following& run) {
    if (to_ != nullptr) to_->plan_end(tag_of(run), run.number);
  }

  void op_begin(const Following& run, InstrId id, OpId op) {
    if (to_ != nullptr) to_->op_begin(tag_of(run), number_of(id), static_cast<std::int32_t>(op));
  }
  void op_end(const Following& run, InstrId id, OpId op) {
    if (to_ != nullptr) to_->op_end(tag_of(run), number_of(id), static_cast<std::int32_t>(op));
  }

  // The compute lane waits until `clock` is reached, and the lanes are at `done`: for a move or, where the copy that is
  // to be done next waits itself, for what that waits for. Called again whenever something has changed; a change of
  // what is waited for ends one wait and begins another.
  void waits(const Following& run, InstrId id, const LaneClock& clock, const LaneClock& done) {
    if (to_ != nullptr) wait_for(run, id, clock, done);
  }
  void waited(const Following& run, InstrId id) {
    if (to_ != nullptr) end_wait(run, id);
  }

  void stay_begin(const Following& run, InstrId id, StayId stay) {
    if (to_ != nullptr) attach(run, id, stay);
  }
  void submit(LaneId lane, const Following& run, InstrId id, BundleId bundle, int disk, std::int32_t under_way) {
    if (to_ != nullptr)
      to_->move_submit(tag_of(run), number_of(id), lane_of(lane), static_cast<std::int32_t>(bundle), bytes_of(bundle),
                       disk_of(disk), under_way);
  }
  void complete(LaneId lane, const Following& run, InstrId id, BundleId bundle, int disk, std::int64_t number) {
    if (to_ != nullptr)
      to_->move_complete(tag_of(run), number_of(id), lane_of(lane), static_cast<std::int32_t>(bundle), bytes_of(bundle),
                         disk_of(disk), number);
  }
  // Outside a plan.
  void visit_begin(LaneId lane, BundleId bundle, int disk) {
    if (to_ != nullptr)
      to_->move_submit({.step = to_->step()}, -1, lane_of(lane), static_cast<std::int32_t>(bundle), bytes_of(bundle),
                       disk_of(disk), 1);
  }
  void visit_end(LaneId lane, BundleId bundle, int disk) {
    if (to_ != nullptr)
      to_->move_complete({.step = to_->step()}, -1, lane_of(lane), static_cast<std::int32_t>(bundle), bytes_of(bundle),
                         disk_of(disk), -1);
  }

  static constexpr int nowhere = -1;  // a disk: nothing was read, or it is a copy

 private:
  static std::int32_t number_of(InstrId id) { return static_cast<std::int32_t>(id); }
  static std::uint8_t disk_of(int disk) { return disk < 0 ? no_disk : static_cast<std::uint8_t>(disk); }
  std::int64_t bytes_of(BundleId bundle) const { return layout_.bundles[index_of(bundle)].bytes; }
  RunTag tag_of(const Following& run) const;
  struct Place {  // an instruction of a run
    const Following* run = nullptr;
    InstrId instr = InstrId::none;
  };
  Place place_of(std::size_t lane, std::int64_t number) const;
  BundleId bundle_of(std::size_t lane, std::int64_t number) const;
  void look_behind_copies(std::size_t& lane, std::int64_t& number, const LaneClock& done) const;
  void wait_for(const Following& run, InstrId id, const LaneClock& clock, const LaneClock& done);
  void end_wait(const Following& run, InstrId id);
  void attach(const Following& run, InstrId id, StayId stay);

  struct Wait {
    std::size_t lane = 0;  // 0: none
    std::int64_t number = 0;
    BundleId bundle = BundleId::none;
    bool operator==(const Wait&) const = default;
  };

  EventRecorder* to_;
  const Layout& layout_;
  const std::vector<PlanWaits>& plans_;
  std::shared_ptr<const Following> now_;
  std::shared_ptr<const Following> before_;
  Wait wait_;
  std::array<std::atomic<std::int32_t>, 64> steps_{};  // by number of the run, for the moves of its tail
};

}  // namespace spillway
