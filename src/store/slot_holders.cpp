// Who holds which slot, and who waits for one.
#include <algorithm>
#include <utility>

#include "store/slot_file.h"

namespace spillway {

void SlotStore::add_slots_to(std::int32_t file, std::int64_t count) {
  const std::lock_guard lock(mutex_);
  std::int64_t& here = slots_in_[static_cast<std::size_t>(file)];
  if (count <= here) return;
  const auto end = static_cast<std::size_t>(count) * files_.size();
  if (holders_.size() < end) {
    holders_.resize(end);
    checksums_.resize(end);
    from_reserve_.resize(end);
  }
  std::vector<std::int32_t>& free = free_[static_cast<std::size_t>(file)];
  std::vector<std::int32_t> more;
  for (std::int64_t i = count; i > here; --i)
    more.push_back(static_cast<std::int32_t>((i - 1) * std::ssize(files_) + file));
  free.insert(free.begin(), more.begin(), more.end());
  free_count_ += count - here;
  here = count;
}

std::int64_t SlotStore::available() const {
  return free_count_ - std::max<std::int64_t>(0, reserved_ - reserved_used_);
}

// After adoptions, of which there are many at once.
void SlotStore::list_free() {
  for (std::vector<std::int32_t>& free : free_) {
    std::erase_if(free, [this](std::int32_t slot) { return holders_[static_cast<std::size_t>(slot)] > 0; });
  }
  free_is_stale_ = false;
}

SlotId SlotStore::take() {
  if (free_is_stale_) list_free();
  // Each file with a free slot gets its share of one slot as credit; the one with the most pays for the slot.
  std::size_t best = files_.size();
  double given = 0;
  for (std::size_t file = 0; file < files_.size(); ++file) {
    if (free_[file].empty()) continue;
    credit_[file] += shares_[file];
    given += shares_[file];
    if (best == files_.size() || credit_[file] > credit_[best] + 1e-9) best = file;
  }
  credit_[best] -= given;
  const std::int32_t slot = free_[best].back();
  free_[best].pop_back();
  holders_[static_cast<std::size_t>(slot)] = 1;
  --free_count_;
  return static_cast<SlotId>(slot);
}

SlotId SlotStore::allocate() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return failure_ || available() > 0 || promises_ == 0; });
  if (failure_) std::rethrow_exception(failure_);
  SPILLWAY_CHECK(available() > 0, "{} slots, all taken", holders_.size());
  return take();
}

SlotId SlotStore::allocate_reserved() {
  const std::lock_guard lock(mutex_);
  SPILLWAY_CHECK(free_count_ > 0 && reserved_used_ < reserved_, "{} of {} reserved slots taken, {} free",
                 reserved_used_, reserved_, free_count_);
  const SlotId slot = take();
  from_reserve_[static_cast<std::size_t>(slot)] = true;
  ++reserved_used_;
  return slot;
}

bool SlotStore::can_allocate(std::int64_t slots) const {
  const std::lock_guard lock(mutex_);
  if (failure_ || available() >= slots) return true;
  starved_ = true;
  return false;
}

void SlotStore::hold(std::span<const SlotId> slots) {
  const std::lock_guard lock(mutex_);
  for (const SlotId slot : slots) {
    std::int32_t& holders = holders_[checked(slot)];
    SPILLWAY_CHECK(holders > 0, "slot {} is free", static_cast<std::int32_t>(slot));
    ++holders;
  }
}

void SlotStore::release(SlotId slot) { release(std::span(&slot, 1)); }

void SlotStore::release(std::span<const SlotId> slots) {
  {
    const std::lock_guard lock(mutex_);
    for (const SlotId slot : slots) release_one(checked(slot));
    notify_starved();
  }
  changed_.notify_all();
}

// Under the mutex, so that whoever takes the notice back is not called any more.
void SlotStore::notify_starved() {
  if (std::exchange(starved_, false) && notify_) notify_();
}

void SlotStore::release_one(std::size_t index) {
  SPILLWAY_CHECK(holders_[index] > 0, "slot {} of {} is free", index, holders_.size());
  if (free_is_stale_) list_free();
  if (--holders_[index] > 0) return;
  if (from_reserve_[index]) --reserved_used_;
  from_reserve_[index] = false;
  free_[index % files_.size()].push_back(static_cast<std::int32_t>(index));
  ++free_count_;
}

void SlotStore::adopt(SlotId slot, std::uint64_t checksum, bool reserved) {
  const std::lock_guard lock(mutex_);
  const std::size_t index = checked(slot);
  if (holders_[index]++ > 0) return;
  checksums_[index] = checksum;
  if (reserved) ++reserved_used_;
  from_reserve_[index] = reserved;
  --free_count_;
  free_is_stale_ = true;
}

void SlotStore::promise_release() {
  const std::lock_guard lock(mutex_);
  ++promises_;
}

void SlotStore::end_promise() {
  {
    const std::lock_guard lock(mutex_);
    SPILLWAY_CHECK(promises_ > 0, "{} promises", promises_);
    --promises_;
  }
  changed_.notify_all();
}

void SlotStore::stop(std::exception_ptr failure) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
    notify_starved();
  }
  changed_.notify_all();
}

void SlotStore::on_release(std::function<void()> notify) {
  const std::lock_guard lock(mutex_);
  notify_ = std::move(notify);
}

std::int64_t SlotStore::slot_count() const {
  const std::lock_guard lock(mutex_);
  std::int64_t count = 0;
  for (const std::int64_t here : slots_in_) count += here;
  return count;
}

std::int64_t SlotStore::free_count() const {
  const std::lock_guard lock(mutex_);
  return free_count_;
}

}  // namespace spillway
