// The disk side of the executor: one thread that starts moves in lane order, sleeps in the engine, and counts what is
// done.
#include <algorithm>
#include <array>
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
  run_promptly();
  for (;;) {
    {
      std::unique_lock lock(lanes_->mutex);
      lanes_->changed.wait(lock, [&] { return lanes_->stop || !lanes_->submitted.empty(); });
      if (lanes_->stop) return;
    }
    try {
      run_disk();
    } catch (const std::exception&) {
      fail(std::current_exception());
      const std::lock_guard lock(lanes_->mutex);
      for (Lanes::Moves& moves : lanes_->moves) moves.plans.clear();
      lanes_->submitted.clear();
      lanes_->idle = true;
      lanes_->changed.notify_all();
    }
  }
}

void Executor::run_disk() {
  Delays delays(options_.delay_seed * 2654435761U + 1);
  std::vector<IoCompletion> completions;
  for (;;) {
    const bool failed = lanes_->failed.load();
    const bool idle = lanes_->moves[1].under_way + lanes_->moves[2].under_way == 0;
    if (!take_submitted(idle)) return;
    if (!failed) {
      if (options_.delay_seed != 0) delays.maybe_sleep();
      while (start_moves(LaneId::read) || start_moves(LaneId::write)) {
      }
    }
    const Lanes::Moves& reads = lanes_->moves[1];
    const Lanes::Moves& writes = lanes_->moves[2];
    const bool at_rest = reads.under_way + writes.under_way == 0;  // what was started may be done at once
    if (at_rest && (failed || (reads.plans.empty() && writes.plans.empty()))) continue;
    if (!failed && !ask_for_wake()) continue;
    completions.clear();
    io_->wait(completions);
    for (const IoCompletion& completion : completions) take(completion);
    take_direct();
  }
}

// False when there is nothing left to do, and then the engine is left alone. After a failure nothing more is started.
bool Executor::take_submitted(bool idle) {
  const std::lock_guard lock(lanes_->mutex);
  for (const auto& following : lanes_->submitted) {
    for (const LaneId lane : {LaneId::read, LaneId::write}) {
      const auto l = static_cast<std::size_t>(lane);
      if (!following->waits->plan().lanes[l].empty()) lanes_->moves[l].plans.push_back(following);
    }
  }
  lanes_->submitted.clear();
  const bool started = lanes_->moves[1].plans.empty() && lanes_->moves[2].plans.empty();
  if (!idle || !(started || lanes_->failed.load())) return true;
  for (Lanes::Moves& moves : lanes_->moves) moves.plans.clear();
  lanes_->idle = true;
  lanes_->changed.notify_all();
  return false;
}

// The next instruction to start in a lane, and its plan; null when there is none or too many are under way.
const Following* Executor::next_of(LaneId lane, InstrId& id) {
  const auto l = static_cast<std::size_t>(lane);
  Lanes::Moves& moves = lanes_->moves[l];
  if (moves.plans.empty() || moves.under_way >= most_in_flight(lane)) return nullptr;
  const Following& following = *moves.plans.front();
  id = following.waits->plan().lanes[l][moves.next];
  return &following;
}

// Says at which counts of ops and copies to wake, then looks once more; false when a move can start after all.
bool Executor::ask_for_wake() {
  constexpr std::array others{static_cast<std::size_t>(LaneId::compute), static_cast<std::size_t>(LaneId::up),
                              static_cast<std::size_t>(LaneId::down), static_cast<std::size_t>(LaneId::update)};
  LaneClock wake_at{};
  wake_at.fill(never);
  bool any = false;
  for (const LaneId lane : {LaneId::read, LaneId::write}) {
    InstrId id = InstrId::none;
    const Following* const following = next_of(lane, id);
    if (following == nullptr) continue;
    const LaneClock clock = following->wait_of(id);
    for (const std::size_t other : others) {
      if (clock[other] > lanes_->done[other].load()) wake_at[other] = std::min(wake_at[other], clock[other]);
    }
  }
  for (const std::size_t other : others) lanes_->wake_at[other] = wake_at[other];
  for (const LaneId lane : {LaneId::read, LaneId::write}) {
    InstrId id = InstrId::none;
    const Following* const following = next_of(lane, id);
    any = any || (following != nullptr && may_start(*following, id));
  }
  return !any;
}

// Everything it waits for is done, and a write has slots to go to: a pending commit gives some back. Without commits
// the plan has counted them.
bool Executor::may_start(const Following& following, InstrId id) const {
  if (!reached(following.wait_of(id))) return false;
  const Plan& plan = following.waits->plan();
  const Instr& instr = plan.instrs[index_of(id)];
  if (instr.kind != Instr::Kind::write || !options_.on_commit || slots_ == nullptr) return true;
  const BundleId bundle = plan.stays[index_of(instr.stays.front())].bundle;
  return keeps_slots(bundle) || slots_->can_allocate(layout_.pages_of(bundle));
}

// Their ends wake the engine.
void Executor::take_direct() {
  if (!direct_) return;
  std::vector<DirectMoves::Ended> done;
  direct_->take(done);
  for (const DirectMoves::Ended& ended : done) {
    if (ended.failure) fail(ended.failure);
    take(ended.completion);
  }
}

// A tag has the lane in its lowest bit, then the low bits of the move's number in it, then the place of the slot.
void Executor::take(const IoCompletion& completion) {
  const auto lane = (completion.tag & 1) != 0 ? LaneId::write : LaneId::read;
  const auto done = static_cast<std::uint64_t>(lanes_->done[static_cast<std::size_t>(lane)].load());
  auto& started = lanes_->moves[static_cast<std::size_t>(lane)].started;
  Move& move = started[((completion.tag >> 1) - done) & 0x7fffffffU];
  const bool last = --move.parts_left == 0;
  if (completion.failed()) {
    const SlotId slot = bundle_slots_[index_of(move.what.bundle)][completion.tag >> 32];
    const auto kind = lane == LaneId::read ? IoRequest::Kind::read : IoRequest::Kind::write;
    fail(std::make_exception_ptr(slots_->failure(slot, kind, completion)));
  }
  if (last) end_move(lane, move);
}

bool Executor::start_moves(LaneId lane) {
  bool any = false;
  for (InstrId id = InstrId::none;; any = true) {
    const Following* const following = next_of(lane, id);
    if (following == nullptr || !may_start(*following, id)) return any;
    start_move(lane);
  }
}

void Executor::start_move(LaneId lane) {
  const auto l = static_cast<std::size_t>(lane);
  Lanes::Moves& moves = lanes_->moves[l];
  const std::shared_ptr<const Following> following = moves.plans.front();
  const Plan& plan = following->waits->plan();
  const InstrId id = plan.lanes[l][moves.next];
  const Instr& instr = plan.instrs[index_of(id)];
  if (++moves.next == plan.lanes[l].size()) {
    moves.plans.pop_front();
    moves.next = 0;
  }
  for (const StayId stay : instr.begins) begin_stay(*following, id, stay);
  if (instr.kind == Instr::Kind::commit) {
    commit(*following);
    lanes_->done[l].fetch_add(1);
    lanes_->signal();
    return;
  }
  const Residence what = residence_of(plan.stays[index_of(instr.stays.front())]);
  const BundleId bundle = what.bundle;
  const std::int64_t number = lanes_->done[l].load() + std::ssize(moves.started);
  const std::uint64_t tag = (static_cast<std::uint64_t>(number) & 0x7fffffffU) << 1 | (lane == LaneId::write ? 1U : 0U);
  moves.started.push_back({following, id, what, number, RunEvents::nowhere, 0, false});
  ++moves.under_way;
  Move& move = moves.started.back();
  if (lane == LaneId::write) {
    keep_version_before(following.get(), bundle);
    replace_slots(bundle);
  }
  move.disk = disk_of(bundle);
  events_.submit(lane, *following, id, bundle, move.disk, moves.under_way);
  if (lane == LaneId::write) {
    move.parts_left = submit(what, IoRequest::Kind::write, tag);
  } else if (bundle_slots_[index_of(bundle)].empty()) {
    zero(what);
    end_move(lane, move);
  } else {
    move.parts_left = submit(what, IoRequest::Kind::read, tag);
  }
}

// Of what was never written.
void Executor::zero(const Residence& what) {
  const std::int64_t bytes = layout_.bundles[index_of(what.bundle)].bytes;
  std::byte* const at = data(what.bundle, what.memory);
  if (what.memory == MemoryId::device && accelerator_) return accelerator_->fill(at, {}, bytes, DeviceStream::disk);
  std::memset(at, 0, static_cast<std::size_t>(bytes));
}

// All writes before it are done and none after it has started. Of a run that may be taken back, it waits for the word.
void Executor::commit(const Following& following) {
  if (!options_.on_commit || slots_ == nullptr) return;
  SlotSnapshot snapshot;
  for (std::size_t b = 0; b < static_cast<std::size_t>(layout_.state_bundles); ++b) {
    snapshot.add(layout_.bundles[b].committed ? std::span<const SlotId>(bundle_slots_[b]) : std::span<const SlotId>());
  }
  slots_->hold(snapshot.slots);
  {
    const std::lock_guard lock(speculation_mutex_);
    if (speculation_ && speculation_->run == &following) {
      speculation_->commit = std::move(snapshot);
      return;
    }
  }
  options_.on_commit(std::move(snapshot));
}

// Nothing is under way for it any more. Moves of a lane count as done in order. A move that failed is never done, and a
// write that failed leaves the old version the newest.
void Executor::end_move(LaneId lane, Move& move) {
  const auto l = static_cast<std::size_t>(lane);
  Lanes::Moves& moves = lanes_->moves[l];
  --moves.under_way;
  if (lane == LaneId::read && !lanes_->failed.load()) {
    try {
      verify_slots(move.what);
    } catch (const DeviceError&) {
      fail(std::current_exception());
    }
  }
  if (lanes_->failed.load()) {
    if (lane == LaneId::write) keep_replaced(move.what.bundle);
    return;
  }
  if (lane == LaneId::write) drop_replaced(move.what.bundle);
  events_.complete(lane, *move.of, move.instr, move.what.bundle, move.disk, move.number);
  move.complete = true;
  std::int64_t done = lanes_->done[l].load();
  for (; !moves.started.empty() && moves.started.front().complete; ++done) moves.started.pop_front();
  lanes_->done[l] = done;
  lanes_->signal();
}

// --- Slots ---

int Executor::disk_of(BundleId bundle) const {
  const auto& slots = bundle_slots_[index_of(bundle)];
  return slots.empty() ? RunEvents::nowhere : slots_->location(slots.front()).file;
}

// A local bundle has one place, and is written there again.
bool Executor::keeps_slots(BundleId bundle) const {
  return !layout_.bundles[index_of(bundle)].state && !bundle_slots_[index_of(bundle)].empty();
}

// A new version goes to new slots; the old ones stand until it is complete.
void Executor::replace_slots(BundleId bundle) {
  if (keeps_slots(bundle)) return;
  auto& slots = bundle_slots_[index_of(bundle)];
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

void Executor::verify_slots(const Residence& what) const {
  const Bundle& bundle = layout_.bundles[index_of(what.bundle)];
  const bool out_of_sight = what.memory == MemoryId::device && accelerator_;
  if (!bundle.state || !options_.verify_reads || out_of_sight) return;
  std::int64_t from = 0;
  for (const SlotId slot : bundle_slots_[index_of(what.bundle)]) {
    const std::int64_t bytes = std::min(layout_.page_bytes, bundle.bytes - from);
    slots_->verify(slot, {data(what.bundle, what.memory) + from, static_cast<std::size_t>(bytes)});
    from += bytes;
  }
}

// One request for each run of slots that lie next to each other; its tag has the place of its first slot in the high
// half. Returns how many.
std::int32_t Executor::submit(const Residence& what, IoRequest::Kind kind, std::uint64_t tag) {
  const auto& slots = bundle_slots_[index_of(what.bundle)];
  const std::int64_t bytes = layout_.bundles[index_of(what.bundle)].bytes;
  if (kind == IoRequest::Kind::write) seal_slots(what.bundle);
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
    IoRequest request{kind,      first.file,       first.offset_bytes, data(what.bundle, what.memory) + from,
                      to - from, tag | begin << 32};
    if (what.memory == MemoryId::device && accelerator_) {
      request.file = slots_->descriptor(slots[begin]);
      direct_->submit(request);
    } else {
      io_->submit(request);
    }
    ++requests;
    begin = end;
  }
  return requests;
}

}  // namespace spillway
