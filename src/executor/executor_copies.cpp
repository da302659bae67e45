// The link side of the executor: a thread for each direction, which copies in lane order, one after the other, and
// sleeps while it waits.
#include "base/bytes.h"
#include "base/error.h"
#include "executor/executor.h"
#include "executor/lanes.h"

namespace spillway {

void Executor::copy_thread(LaneId lane) {
  Lanes::Copies& copies = lanes_->copies(lane);
  const LinkRate& link = options_.link;
  LinkPace pace(lane == LaneId::up ? link.up_bytes_per_second : link.down_bytes_per_second, link.copy_seconds);
  for (;;) {
    std::shared_ptr<const Following> following;
    {
      std::unique_lock lock(lanes_->mutex);
      if (lanes_->failed.load()) copies.submitted.clear();
      copies.idle = copies.submitted.empty();
      if (copies.idle) lanes_->changed.notify_all();
      lanes_->changed.wait(lock, [&] { return lanes_->stop || !copies.submitted.empty(); });
      if (lanes_->stop) return;
      following = std::move(copies.submitted.front());
      copies.submitted.pop_front();
    }
    try {
      run_copies(*following, lane, pace);
    } catch (const std::exception&) {
      fail(std::current_exception());
    }
  }
}

// Those of one plan; stops when any lane has failed.
void Executor::run_copies(const Following& following, LaneId lane, LinkPace& pace) {
  const Plan& plan = following.waits->plan();
  Delays delays(options_.delay_seed == 0 ? 0 : options_.delay_seed * 40503U + static_cast<std::uint64_t>(lane));
  for (const InstrId id : plan.lanes[static_cast<std::size_t>(lane)]) {
    if (!wait_for_copy(following.wait_of(id))) return;
    delays.maybe_sleep();
    const Instr& instr = plan.instrs[index_of(id)];
    for (const StayId stay : instr.begins) begin_stay(following, id, stay);
    const BundleId bundle = plan.stays[index_of(instr.stays.front())].bundle;
    const MemoryId to = lane == LaneId::up ? MemoryId::device : MemoryId::host;
    const MemoryId from = lane == LaneId::up ? MemoryId::host : MemoryId::device;
    pace.copy(data(bundle, to), data(bundle, from), layout_.bundles[index_of(bundle)].bytes);
    end_instr(lane);
  }
}

bool Executor::wait_for_copy(const LaneClock& clock) {
  for (;;) {
    const std::uint32_t seen = lanes_->events.load();
    if (lanes_->failed.load()) return false;
    if (reached(clock)) return true;
    lanes_->events.wait(seen);
  }
}

void Executor::stop_copies() {
  for (const LaneId lane : {LaneId::up, LaneId::down}) {
    if (lanes_->copies(lane).thread.joinable()) lanes_->copies(lane).thread.join();
  }
}

std::string Executor::describe_device() const {
  if (!has_device()) return {};
  const auto rate = [](double bytes_per_second) {
    if (bytes_per_second <= 0) return std::string("any rate");
    return format_bytes(static_cast<std::int64_t>(bytes_per_second)) + "/s";
  };
  return fmt::format("a virtual device of {}, at {} up and {} down", format_bytes(device_->pool_bytes()),
                     rate(options_.link.up_bytes_per_second), rate(options_.link.down_bytes_per_second));
}

}  // namespace spillway
