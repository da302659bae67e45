// The executor between runs: bundles brought into memory for loading, saving, and the boundary of the next plan.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "executor/executor.h"

namespace spillway {

void Executor::bring_in(BundleId bundle) {
  std::vector<bool> used(static_cast<std::size_t>(pool_->page_count()), false);
  for (const auto& [other, held] : in_memory_) {
    for (const PageId page : held.pages) used[index_of(page)] = true;
  }
  std::vector<PageId> pages;
  for (std::size_t p = 0; p < used.size() && static_cast<std::int64_t>(pages.size()) < layout_.pages_of(bundle); ++p) {
    if (!used[p]) pages.push_back(static_cast<PageId>(p));
  }
  SPILLWAY_CHECK(static_cast<std::int64_t>(pages.size()) == layout_.pages_of(bundle), "no {} free pages for bundle {}",
                 layout_.pages_of(bundle), index_of(bundle));
  for (std::size_t i = 0; i < pages.size(); ++i) {
    pool_->attach(pages[i],
                  layout_.bundles[index_of(bundle)].address + static_cast<std::int64_t>(i) * layout_.page_bytes);
  }
  in_memory_[bundle] = {std::move(pages), false};
  if (bundle_slots_[index_of(bundle)].empty()) {
    std::memset(data(bundle), 0, static_cast<std::size_t>(layout_.bundles[index_of(bundle)].bytes));
  } else {
    move_now(bundle, IoRequest::Kind::read);
  }
}

void Executor::write_out(BundleId bundle) {
  replace_slots(bundle);
  move_now(bundle, IoRequest::Kind::write);
  drop_replaced(bundle);
  on_disk_[index_of(bundle)] = true;
}

void Executor::move_now(BundleId bundle, IoRequest::Kind kind) {
  const LaneId lane = kind == IoRequest::Kind::read ? LaneId::read : LaneId::write;
  events_.visit_begin(lane, bundle, disk_of(bundle));
  std::int32_t left = submit(bundle, kind, 0);
  std::int64_t left_bytes = layout_.bundles[index_of(bundle)].bytes;
  IoCompletion failed;
  std::vector<IoCompletion> completions;
  while (left > 0) {  // after a failure too: nothing is to be under way when the caller unwinds
    completions.clear();
    io_->wait(completions);
    for (const IoCompletion& completion : completions) {
      left_bytes -= completion.bytes;
      if (failed.error == 0) failed = completion;
      --left;
    }
  }
  if (failed.error != 0 || left_bytes != 0) {
    const SlotId slot = bundle_slots_[index_of(bundle)][failed.tag >> 32];
    if (kind == IoRequest::Kind::write) keep_replaced(bundle);
    throw slots_->failure(slot, kind, failed);
  }
  events_.visit_end(lane, bundle, disk_of(bundle));
  if (kind == IoRequest::Kind::read) verify_slots(bundle);
}

void Executor::write_residents() {
  drain();
  end_visit(0);
  for (auto& [bundle, held] : in_memory_) {
    if (!held.dirty) continue;
    write_out(bundle);
    held.dirty = false;
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
  const auto visited =
      std::find_if(visits_.begin(), visits_.end(), [&](const Visit& entry) { return entry.bundle == place.bundle; });
  if (visited != visits_.end()) {
    visited->changed = visited->changed || changes;
    std::rotate(visited, visited + 1, visits_.end());
  } else if (const auto held = in_memory_.find(place.bundle); held != in_memory_.end()) {
    held->second.dirty = held->second.dirty || changes;
  } else {
    end_visit(visited_bundles - 1);
    bring_in(place.bundle);
    visits_.push_back({place.bundle, changes});
  }
  visit(data(place.bundle) + place.offset_bytes);
}

// Puts away all but the latest `keep`.
void Executor::end_visit(std::size_t keep) {
  while (visits_.size() > keep) {
    const Visit visit = visits_.front();
    visits_.erase(visits_.begin());
    if (visit.changed) write_out(visit.bundle);
    in_memory_.erase(visit.bundle);
  }
}

void Executor::settle(const Plan& plan, const Boundary& boundary) {
  drain();
  end_visit(0);
  const auto& dead = layout_.programs[static_cast<std::size_t>(plan.program)].dead_on_entry;
  std::map<BundleId, bool> wanted;  // may be dirty
  for (std::size_t i = 0; i < boundary.stays.size(); ++i) {
    wanted[plan.stays[index_of(boundary.stays[i])].bundle] = boundary.dirty[i];
  }
  for (auto held = in_memory_.begin(); held != in_memory_.end();) {
    const auto stays = wanted.find(held->first);
    const bool useless = stays == wanted.end() && dead[index_of(held->first)];
    if (held->second.dirty && !useless && (stays == wanted.end() || !stays->second)) {
      write_out(held->first);
      held->second.dirty = false;
    }
    held = stays != wanted.end() ? std::next(held) : in_memory_.erase(held);
  }
  for (const auto& [bundle, dirty] : wanted) {
    if (!in_memory_.contains(bundle)) bring_in(bundle);
  }
}

bool Executor::is_ready_for(const Plan& plan) const {
  std::vector<bool> wanted = layout_.programs[static_cast<std::size_t>(plan.program)].dead_on_entry;  // or of no use
  for (const StayId id : plan.entry.stays) {
    const BundleId bundle = plan.stays[index_of(id)].bundle;
    if (!in_memory_.contains(bundle)) return false;
    wanted[index_of(bundle)] = true;
  }
  return std::all_of(in_memory_.begin(), in_memory_.end(),
                     [&](const auto& held) { return !held.second.dirty || wanted[index_of(held.first)]; });
}

}  // namespace spillway
