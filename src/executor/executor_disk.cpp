// The disk side of the executor: one thread that starts moves in lane order, sleeps in the engine, and counts what is
// done.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "executor/executor.h"
#include "executor/lanes.h"

namespace spillway {
namespace {

std::int32_t most_in_flight(LaneId lane) {
  return lane == LaneId::read ? 16 : static_cast<std::int32_t>(max_writes_in_flight);
}

}  // namespace

void Executor::disk_thread() {
  for (;;) {
    const Prepared* job = nullptr;
    {
      std::unique_lock lock(lanes_->mutex);
      lanes_->changed.wait(lock, [&] { return lanes_->stop || lanes_->job != nullptr; });
      if (lanes_->stop) return;
      job = lanes_->job;
    }
    try {
      run_disk(*job);
    } catch (const std::exception&) {
      fail(std::current_exception());
    }
    {
      const std::lock_guard lock(lanes_->mutex);
      lanes_->job = nullptr;
    }
    lanes_->changed.notify_all();
  }
}

void Executor::run_disk(const Prepared& prepared) {
  Delays delays(options_.delay_seed * 2654435761U + 1);
  std::vector<IoCompletion> completions;
  for (;;) {
    const bool failed = lanes_->failed.load();
    if (!failed) {
      if (options_.delay_seed != 0) delays.maybe_sleep();
      while (start_moves(prepared, LaneId::read) || start_moves(prepared, LaneId::write)) {
      }
    }
    const bool idle = lanes_->in_flight[1] + lanes_->in_flight[2] == 0;
    if (idle && (failed || all_started(*prepared.plan))) return;
    if (!failed && !ask_for_wake(prepared)) continue;
    completions.clear();
    io_->wait(completions);
    for (const IoCompletion& completion : completions) take(prepared, completion);
  }
}

bool Executor::all_started(const Plan& plan) const {
  return lanes_->next[1] == plan.lanes[1].size() && lanes_->next[2] == plan.lanes[2].size();
}

// Says at which compute position to wake, then looks once more; false when a move can start after all.
bool Executor::ask_for_wake(const Prepared& prepared) {
  const auto head_waits = [&](LaneId lane) -> const Clock* {
    const auto l = static_cast<std::size_t>(lane);
    const auto& order = prepared.plan->lanes[l];
    const bool full = lanes_->in_flight[l] >= most_in_flight(lane);
    return lanes_->next[l] < order.size() && !full ? &prepared.waits[index_of(order[lanes_->next[l]])] : nullptr;
  };
  std::int32_t wake_at = never;
  for (const LaneId lane : {LaneId::read, LaneId::write}) {
    const Clock* const clock = head_waits(lane);
    if (clock != nullptr && (*clock)[0] > lanes_->done[0].load()) wake_at = std::min(wake_at, (*clock)[0]);
  }
  lanes_->wake_at = wake_at;
  for (const LaneId lane : {LaneId::read, LaneId::write}) {
    const Clock* const clock = head_waits(lane);
    if (clock != nullptr && reached(*clock)) return false;
  }
  return true;
}

void Executor::take(const Prepared& prepared, const IoCompletion& completion) {
  const auto id = static_cast<InstrId>(completion.tag & 0xffffffffU);
  const Instr& instr = prepared.plan->instrs[index_of(id)];
  const auto kind = instr.kind == Instr::Kind::read ? IoRequest::Kind::read : IoRequest::Kind::write;
  bytes_left_[index_of(id)] -= completion.bytes;
  const bool last = --parts_left_[index_of(id)] == 0;
  if (completion.error != 0 || (last && bytes_left_[index_of(id)] != 0)) {
    const BundleId bundle = prepared.plan->stays[index_of(instr.stays.front())].bundle;
    const SlotId slot = bundle_slots_[index_of(bundle)][completion.tag >> 32];
    fail(std::make_exception_ptr(slots_->failure(slot, kind, completion)));
  }
  if (last) end_move(prepared, id);
}

bool Executor::start_moves(const Prepared& prepared, LaneId lane) {
  const auto l = static_cast<std::size_t>(lane);
  const auto& order = prepared.plan->lanes[l];
  bool started = false;
  while (lanes_->next[l] < order.size() && lanes_->in_flight[l] < most_in_flight(lane) &&
         reached(prepared.waits[index_of(order[lanes_->next[l]])])) {
    start_move(prepared, order[lanes_->next[l]]);
    started = true;
  }
  return started;
}

void Executor::start_move(const Prepared& prepared, InstrId id) {
  const Instr& instr = prepared.plan->instrs[index_of(id)];
  const auto lane = static_cast<std::size_t>(instr.lane);
  const BundleId bundle = prepared.plan->stays[index_of(instr.stays.front())].bundle;
  ++lanes_->next[lane];
  ++lanes_->in_flight[lane];
  for (const StayId stay : instr.begins) begin_stay(*prepared.plan, stay, options_.poison);
  bytes_left_[index_of(id)] = layout_.bundles[index_of(bundle)].bytes;
  if (instr.kind == Instr::Kind::write) {
    replace_slots(bundle);
    parts_left_[index_of(id)] = submit(bundle, IoRequest::Kind::write, static_cast<std::uint64_t>(id));
  } else if (bundle_slots_[index_of(bundle)].empty()) {  // never written: zero
    std::memset(data(bundle), 0, static_cast<std::size_t>(layout_.bundles[index_of(bundle)].bytes));
    finish_move(prepared, id);
  } else {
    parts_left_[index_of(id)] = submit(bundle, IoRequest::Kind::read, static_cast<std::uint64_t>(id));
  }
}

// Nothing is under way for it any more. A move that failed is never done, and a write that failed leaves the old
// version the newest.
void Executor::end_move(const Prepared& prepared, InstrId id) {
  const Instr& instr = prepared.plan->instrs[index_of(id)];
  const BundleId bundle = prepared.plan->stays[index_of(instr.stays.front())].bundle;
  if (instr.kind == Instr::Kind::read && !lanes_->failed.load()) {
    try {
      verify_slots(bundle);
    } catch (const DeviceError&) {
      fail(std::current_exception());
    }
  }
  if (!lanes_->failed.load()) {
    Traffic& traffic = lanes_->traffic;
    (instr.kind == Instr::Kind::read ? traffic.read_bytes : traffic.write_bytes) +=
        layout_.bundles[index_of(bundle)].bytes;
    finish_move(prepared, id);
    return;
  }
  --lanes_->in_flight[static_cast<std::size_t>(instr.lane)];
  if (instr.kind == Instr::Kind::write) keep_replaced(bundle);
}

// Moves of a lane count as done in order.
void Executor::finish_move(const Prepared& prepared, InstrId id) {
  const Instr& instr = prepared.plan->instrs[index_of(id)];
  const auto lane = static_cast<std::size_t>(instr.lane);
  --lanes_->in_flight[lane];
  if (instr.kind == Instr::Kind::write) drop_replaced(prepared.plan->stays[index_of(instr.stays.front())].bundle);
  lanes_->complete[index_of(id)] = true;
  const auto& order = prepared.plan->lanes[lane];
  std::int32_t done = lanes_->done[lane].load();
  while (static_cast<std::size_t>(done) < order.size() &&
         lanes_->complete[index_of(order[static_cast<std::size_t>(done)])]) {
    ++done;
  }
  lanes_->done[lane] = done;
  lanes_->signal();
}

// --- Slots ---

// A new version goes to new slots; the old ones stand until it is complete. A local bundle has one place.
void Executor::replace_slots(BundleId bundle) {
  auto& slots = bundle_slots_[index_of(bundle)];
  if (!layout_.bundles[index_of(bundle)].state && !slots.empty()) return;
  SPILLWAY_CHECK(slots_ != nullptr, "a plan moves bundle {}, but there is no slot file", index_of(bundle));
  replaced_slots_[index_of(bundle)] = std::move(slots);
  slots.clear();
  for (std::int64_t i = layout_.pages_of(bundle); i > 0; --i) slots.push_back(slots_->allocate());
}

// In reverse, so that they are handed out again in ascending order and lie next to each other.
void Executor::drop_replaced(BundleId bundle) {
  auto& slots = replaced_slots_[index_of(bundle)];
  for (auto slot = slots.rbegin(); slot != slots.rend(); ++slot) slots_->release(*slot);
  slots.clear();
}

void Executor::keep_replaced(BundleId bundle) {
  if (replaced_slots_[index_of(bundle)].empty()) return;
  std::swap(bundle_slots_[index_of(bundle)], replaced_slots_[index_of(bundle)]);
  drop_replaced(bundle);
}

// State that is kept, or looked at again, is sealed when it is written: its bytes do not change until the write is
// complete.
void Executor::seal_slots(BundleId bundle) {
  const Bundle& what = layout_.bundles[index_of(bundle)];
  if (!what.state || !(slots_->kept() || options_.verify_reads)) return;
  std::int64_t from = 0;
  for (const SlotId slot : bundle_slots_[index_of(bundle)]) {
    const std::int64_t bytes = std::min(layout_.page_bytes, what.bytes - from);
    slots_->seal(slot, {data(bundle) + from, static_cast<std::size_t>(bytes)});
    from += bytes;
  }
}

void Executor::verify_slots(BundleId bundle) const {
  const Bundle& what = layout_.bundles[index_of(bundle)];
  if (!what.state || !options_.verify_reads) return;
  std::int64_t from = 0;
  for (const SlotId slot : bundle_slots_[index_of(bundle)]) {
    const std::int64_t bytes = std::min(layout_.page_bytes, what.bytes - from);
    slots_->verify(slot, {data(bundle) + from, static_cast<std::size_t>(bytes)});
    from += bytes;
  }
}

// One request for each run of slots that lie next to each other; its tag has the place of its first slot in the high
// half. Returns how many.
std::int32_t Executor::submit(BundleId bundle, IoRequest::Kind kind, std::uint64_t tag) {
  const auto& slots = bundle_slots_[index_of(bundle)];
  const std::int64_t bytes = layout_.bundles[index_of(bundle)].bytes;
  if (kind == IoRequest::Kind::write) seal_slots(bundle);
  std::int32_t requests = 0;
  for (std::size_t begin = 0; begin < slots.size();) {
    const SlotStore::Location first = slots_->location(slots[begin]);
    std::size_t end = begin + 1;
    while (end < slots.size()) {
      const SlotStore::Location next = slots_->location(slots[end]);
      const std::int64_t offset = first.offset_bytes + static_cast<std::int64_t>(end - begin) * layout_.page_bytes;
      if (next.file != first.file || next.offset_bytes != offset) break;
      ++end;
    }
    const std::int64_t from = static_cast<std::int64_t>(begin) * layout_.page_bytes;
    const std::int64_t to = std::min(bytes, static_cast<std::int64_t>(end) * layout_.page_bytes);
    io_->submit({kind, first.file, first.offset_bytes, data(bundle) + from, to - from, tag | begin << 32});
    ++requests;
    begin = end;
  }
  return requests;
}

}  // namespace spillway
