// The link side of the executor: a thread for each direction, which copies in lane order, one after the other, and
// sleeps while it waits.
#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"
#include "executor/executor.h"
#include "executor/lanes.h"

namespace spillway {

// Takes the plans of a lane one after the other.
void Executor::serve(LaneId lane, const std::function<void(const Following&)>& run_lane) {
  Lanes::Worker& worker = lanes_->worker(lane);
  for (;;) {
    std::shared_ptr<const Following> following;
    {
      std::unique_lock lock(lanes_->mutex);
      if (lanes_->failed.load()) worker.submitted.clear();
      worker.idle = worker.submitted.empty();
      if (worker.idle) lanes_->changed.notify_all();
      lanes_->changed.wait(lock, [&] { return lanes_->stop || !worker.submitted.empty(); });
      if (lanes_->stop) return;
      following = std::move(worker.submitted.front());
      worker.submitted.pop_front();
    }
    try {
      run_lane(*following);
    } catch (const std::exception&) {
      fail(std::current_exception());
    }
  }
}

void Executor::copy_thread(LaneId lane) {
  const LinkRate& link = options_.link;
  LinkPace pace(lane == LaneId::up ? link.up_bytes_per_second : link.down_bytes_per_second, link.copy_seconds);
  serve(lane, [&](const Following& following) { run_copies(following, lane, pace); });
}

// Those of one plan; stops when any lane has failed.
void Executor::run_copies(const Following& following, LaneId lane, LinkPace& pace) {
  const Plan& plan = following.waits->plan();
  Delays delays(options_.delay_seed == 0 ? 0 : options_.delay_seed * 40503U + static_cast<std::uint64_t>(lane));
  for (const InstrId id : plan.lanes[static_cast<std::size_t>(lane)]) {
    if (!wait_in_lane(following.wait_of(id))) return;
    delays.maybe_sleep();
    const Instr& instr = plan.instrs[index_of(id)];
    for (const StayId stay : instr.begins) begin_stay(following, id, stay);
    const BundleId bundle = plan.stays[index_of(instr.stays.front())].bundle;
    const MemoryId to = lane == LaneId::up ? MemoryId::device : MemoryId::host;
    const MemoryId from = lane == LaneId::up ? MemoryId::host : MemoryId::device;
    const std::int64_t number = lanes_->done[static_cast<std::size_t>(lane)].load();
    events_.submit(lane, following, id, bundle, RunEvents::nowhere, 1);
    if (accelerator_) {
      move_over_link(lane, bundle, host_pages_of(following, instr));
    } else {
      pace.copy(data(bundle, to), data(bundle, from), layout_.bundles[index_of(bundle)].bytes);
    }
    events_.complete(lane, following, id, bundle, RunEvents::nowhere, number);
    end_instr(lane);
  }
}

bool Executor::wait_in_lane(const LaneClock& clock) {
  for (;;) {
    const std::uint32_t seen = lanes_->events.load();
    if (lanes_->failed.load()) return false;
    if (reached(clock)) return true;
    lanes_->events.wait(seen);
  }
}

// For the directions of the link, and for updates where a plan has some.
void Executor::start_workers(std::span<const Plan> plans) {
  for (const LaneId lane : {LaneId::up, LaneId::down}) {
    lanes_->worker(lane).thread = std::thread([this, lane] { copy_thread(lane); });
  }
  const bool updates = std::any_of(plans.begin(), plans.end(), [](const Plan& plan) {
    return !plan.lanes[static_cast<std::size_t>(LaneId::update)].empty();
  });
  if (!updates) return;
  update_threads_ = std::make_unique<ThreadPool>(options_.threads);
  lanes_->worker(LaneId::update).thread = std::thread([this] { update_thread(); });
}

void Executor::stop_workers() {
  for (const LaneId lane : worker_lanes) {
    if (lanes_->worker(lane).thread.joinable()) lanes_->worker(lane).thread.join();
  }
}

std::string Executor::describe_device() const {
  if (!has_device()) return {};
  if (accelerator_) return accelerator_->describe();
  const auto rate = [](double bytes_per_second) {
    if (bytes_per_second <= 0) return std::string("any rate");
    return format_bytes(static_cast<std::int64_t>(bytes_per_second)) + "/s";
  };
  return fmt::format("a virtual device of {}, at {} up and {} down", format_bytes(device_->pool_bytes()),
                     rate(options_.link.up_bytes_per_second), rate(options_.link.down_bytes_per_second));
}

}  // namespace spillway
