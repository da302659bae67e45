// The executor between runs: bundles brought into memory for loading, saving, and the boundary of the next plan.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "executor/executor.h"

namespace spillway {

Executor::InMemory* Executor::held(MemoryId memory, BundleId bundle) {
  const auto found = in_memory_.find({memory, bundle});
  return found != in_memory_.end() ? &found->second : nullptr;
}

// Gives the bundle free pages of the memory, those that are wanted where all of them are free; what they hold is not
// its bytes yet.
Executor::InMemory& Executor::take_pages(const Residence& what, std::span<const PageId> wanted) {
  const std::int64_t first = what.memory == MemoryId::device ? pool_->page_count() : 0;
  std::vector<bool> used(static_cast<std::size_t>(first + page_count(what.memory)), false);
  for (const auto& [other, held] : in_memory_) {
    if (other.memory != what.memory) continue;
    for (const PageId page : held.pages) used[index_of(page)] = true;
  }
  std::vector<PageId> pages;
  const bool free = std::none_of(wanted.begin(), wanted.end(), [&](PageId page) { return used[index_of(page)]; });
  if (free) pages.assign(wanted.begin(), wanted.end());
  for (auto p = static_cast<std::size_t>(first);
       p < used.size() && static_cast<std::int64_t>(pages.size()) < layout_.pages_of(what.bundle); ++p) {
    if (!used[p]) pages.push_back(static_cast<PageId>(p));
  }
  SPILLWAY_CHECK(static_cast<std::int64_t>(pages.size()) == layout_.pages_of(what.bundle),
                 "no {} free pages for bundle {}", layout_.pages_of(what.bundle), index_of(what.bundle));
  attach(pages, what);
  return in_memory_[what] = {std::move(pages), false};
}

void Executor::bring_in(BundleId bundle, std::span<const PageId> wanted) {
  take_pages({MemoryId::host, bundle}, wanted);
  if (bundle_slots_[index_of(bundle)].empty()) {
    zero({MemoryId::host, bundle});
  } else {
    move_now(bundle, IoRequest::Kind::read);
  }
}

void Executor::write_out(BundleId bundle) {
  replace_slots(bundle);
  move_now(bundle, IoRequest::Kind::write);
  drop_replaced(bundle);
  on_disk_[index_of(bundle)] = true;
  if (InMemory* const found = held(MemoryId::host, bundle)) found->dirty = false;
}

// To the device, from the host's memory or by way of it. What was never written is zero.
void Executor::lift(BundleId bundle, std::span<const PageId> wanted) {
  const bool passes = held(MemoryId::host, bundle) == nullptr;
  if (passes) bring_in(bundle);
  take_pages({MemoryId::device, bundle}, wanted);
  copy_now(bundle, LaneId::up);
  if (passes) in_memory_.erase({MemoryId::host, bundle});
}

// What the device has of it becomes what is below too: in the host's memory where that holds it or is to, or else on
// disk.
void Executor::lower(BundleId bundle, bool to_host) {
  const bool comes = held(MemoryId::host, bundle) == nullptr;
  const bool passes = comes && !to_host;
  if (comes) take_pages({MemoryId::host, bundle});
  copy_now(bundle, LaneId::down);
  held(MemoryId::device, bundle)->dirty = false;
  held(MemoryId::host, bundle)->dirty = true;
  if (!passes) return;
  write_out(bundle);
  in_memory_.erase({MemoryId::host, bundle});
}

void Executor::copy_now(BundleId bundle, LaneId lane) {
  events_.visit_begin(lane, bundle, RunEvents::nowhere);
  move_over_link(lane, bundle, held(MemoryId::host, bundle)->pages);
  events_.visit_end(lane, bundle, RunEvents::nowhere);
}

void Executor::move_now(BundleId bundle, IoRequest::Kind kind) {
  const LaneId lane = kind == IoRequest::Kind::read ? LaneId::read : LaneId::write;
  events_.visit_begin(lane, bundle, disk_of(bundle));
  std::int32_t left = submit({MemoryId::host, bundle}, kind, 0);
  IoCompletion failed;  // the first that did
  std::vector<IoCompletion> completions;
  while (left > 0) {  // after a failure too: nothing is to be under way when the caller unwinds
    completions.clear();
    io_->wait(completions);
    for (const IoCompletion& completion : completions) {
      if (!failed.failed()) failed = completion;
      --left;
    }
  }
  if (failed.failed()) {
    const SlotId slot = bundle_slots_[index_of(bundle)][failed.tag >> 32];
    if (kind == IoRequest::Kind::write) keep_replaced(bundle);
    throw slots_->failure(slot, kind, failed);
  }
  events_.visit_end(lane, bundle, disk_of(bundle));
  if (kind == IoRequest::Kind::read) verify_slots({MemoryId::host, bundle});
}

void Executor::write_residents() {
  drain();
  end_visit(0);
  std::vector<Residence> dirty;
  for (const auto& [what, held] : in_memory_) {
    if (held.dirty && what.memory == MemoryId::device) dirty.push_back(what);
  }
  for (const Residence& what : dirty) lower(what.bundle);
  for (const auto& [what, held] : in_memory_) {
    if (held.dirty && what.memory == MemoryId::host) write_out(what.bundle);
  }
}

void Executor::adopt(const SlotSnapshot& snapshot) {
  SPILLWAY_CHECK(in_memory_.empty() && visits_.empty(), "{} bundles are in memory", in_memory_.size());
  for (std::size_t b = 0; b < snapshot.bundles(); ++b) {
    const auto slots = snapshot.of(b);
    bundle_slots_[b].assign(slots.begin(), slots.end());
    on_disk_[b] = !slots.empty();
  }
}

SlotSnapshot Executor::snapshot() const {
  SlotSnapshot snapshot;
  for (std::int32_t b = 0; b < layout_.state_bundles; ++b) snapshot.add(bundle_slots_[static_cast<std::size_t>(b)]);
  if (slots_) slots_->hold(snapshot.slots);
  return snapshot;
}

void Executor::visit_piece(PieceId piece, bool changes, const std::function<void(std::byte* data)>& visit) {
  drain();
  const Place& place = layout_.piece_places[index_of(piece)];
  const bool on_device = held(MemoryId::device, place.bundle) != nullptr;
  const MemoryId where = on_device && !accelerator_ ? MemoryId::device : MemoryId::host;
  const auto visited =
      std::find_if(visits_.begin(), visits_.end(), [&](const Visit& entry) { return entry.bundle == place.bundle; });
  if (visited != visits_.end()) {
    visited->changed = visited->changed || changes;
    std::rotate(visited, visited + 1, visits_.end());
  } else if (on_device && accelerator_) {
    bring_down(place.bundle, changes);
  } else if (InMemory* const found = held(where, place.bundle)) {
    found->dirty = found->dirty || changes;
  } else {
    end_visit(visited_bundles - 1);
    bring_in(place.bundle);
    visits_.push_back({place.bundle, changes});
  }
  visit(data(place.bundle, where) + place.offset_bytes);
}

// Puts away all but the latest `keep`.
void Executor::end_visit(std::size_t keep) {
  while (visits_.size() > keep) {
    const Visit visit = visits_.front();
    visits_.erase(visits_.begin());
    if (visit.of_device && visit.changed) {
      copy_now(visit.bundle, LaneId::up);
      held(MemoryId::device, visit.bundle)->dirty = true;
      held(MemoryId::host, visit.bundle)->dirty = true;
    } else if (visit.changed) {
      write_out(visit.bundle);
    }
    if (visit.passes) in_memory_.erase({MemoryId::host, visit.bundle});
  }
}

// Of an accelerator's memory, which the processor does not see, for a visit.
void Executor::bring_down(BundleId bundle, bool changes) {
  end_visit(visited_bundles - 1);
  const bool passes = held(MemoryId::host, bundle) == nullptr;
  if (passes) take_pages({MemoryId::host, bundle});
  copy_now(bundle, LaneId::down);
  // What comes down may be newer than the copy on disk.
  InMemory& below = *held(MemoryId::host, bundle);
  below.dirty = below.dirty || held(MemoryId::device, bundle)->dirty;
  visits_.push_back({bundle, changes, true, passes});
}

void Executor::settle(const Plan& plan, const Boundary& boundary) {
  drain();
  end_visit(0);
  const auto& dead = layout_.programs[static_cast<std::size_t>(plan.program)].dead_on_entry;
  std::map<Residence, bool> wanted;  // may be dirty
  std::map<Residence, std::vector<PageId>> at_boundary;
  for (std::size_t i = 0; i < boundary.stays.size(); ++i) {
    const Stay& stay = plan.stays[index_of(boundary.stays[i])];
    wanted[residence_of(stay)] = boundary.dirty[i];
    at_boundary[residence_of(stay)] = stay.pages;
  }
  // What leaves the device needs the room that the host keeps for visits, so the host is cleared first.
  for (const MemoryId memory : {MemoryId::host, MemoryId::device}) put_away(memory, wanted, dead);
  for (const MemoryId memory : {MemoryId::host, MemoryId::device}) {
    for (const auto& [what, dirty] : wanted) {
      if (what.memory != memory || in_memory_.contains(what)) continue;
      const std::vector<PageId>& pages = at_boundary[what];
      memory == MemoryId::host ? bring_in(what.bundle, pages) : lift(what.bundle, pages);
    }
  }
  for (const auto& [what, dirty] : wanted) {  // which what left the device may have changed
    if (what.memory == MemoryId::host && !dirty && in_memory_[what].dirty) write_out(what.bundle);
  }
}

// What of a memory is not wanted leaves it, and what is wanted clean is written, where it is of use.
void Executor::put_away(MemoryId memory, const std::map<Residence, bool>& wanted, const std::vector<bool>& dead) {
  std::vector<Residence> all;
  for (const auto& [what, held] : in_memory_) {
    if (what.memory == memory) all.push_back(what);
  }
  for (const Residence& what : all) {
    const auto stays = wanted.find(what);
    const bool gone = stays == wanted.end();
    const InMemory* const above = memory == MemoryId::host ? held(MemoryId::device, what.bundle) : nullptr;
    const bool stale = above != nullptr && above->dirty;
    const bool useless = stale || (gone && dead[index_of(what.bundle)]);
    if (in_memory_[what].dirty && !useless && (gone || !stays->second)) {
      const bool to_host = wanted.contains({MemoryId::host, what.bundle});
      memory == MemoryId::device ? lower(what.bundle, to_host) : write_out(what.bundle);
    }
    if (gone) in_memory_.erase(what);
  }
}

bool Executor::is_ready_for(const Plan& plan) {
  if (!visits_.empty()) {  // some of what is in memory is so for these alone
    drain();
    end_visit(0);
  }
  const auto& dead = layout_.programs[static_cast<std::size_t>(plan.program)].dead_on_entry;
  const std::vector<bool> dead_below = dead_below_on_entry(plan, layout_);
  std::vector<bool> wanted(memory_count * layout_.bundles.size(), false);
  for (const StayId id : plan.entry.stays) {
    const Residence what = residence_of(plan.stays[index_of(id)]);
    if (!in_memory_.contains(what)) return false;
    wanted[index_in(layout_, what)] = true;
  }
  return std::all_of(in_memory_.begin(), in_memory_.end(), [&](const auto& held) {
    const auto& [what, now] = held;
    const bool useless =
        dead[index_of(what.bundle)] || (what.memory == MemoryId::host && dead_below[index_of(what.bundle)]);
    return !now.dirty || wanted[index_in(layout_, what)] || useless;
  });
}

}  // namespace spillway
