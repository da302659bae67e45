// Runs that may be taken back. A new version on disk goes to other slots than the one before, so to go back is to name
// the old slots again.
#include "base/error.h"
#include "executor/executor.h"

namespace spillway {

void Executor::speculate(std::span<const BundleId> bundles) {
  SPILLWAY_CHECK(!has_device(), "a run with a device cannot be taken back");
  end_visit(0);
  for (const BundleId bundle : bundles) {
    const InMemory* const found = held(MemoryId::host, bundle);
    if (found == nullptr || !found->dirty) continue;
    drain();
    write_out(bundle);
  }
  const std::lock_guard lock(speculation_mutex_);
  SPILLWAY_CHECK(!speculation_, "a run that may be taken back is not decided yet");
  speculation_ = Speculation{};
  speculation_->bundles.resize(layout_.bundles.size(), false);
  for (const BundleId bundle : bundles) speculation_->bundles[index_of(bundle)] = true;
}

// On the disk thread, before a write of this run replaces the slots.
void Executor::keep_version_before(const Following* run, BundleId bundle) {
  const std::lock_guard lock(speculation_mutex_);
  if (!speculation_ || speculation_->run != run || !speculation_->bundles[index_of(bundle)]) return;
  const auto [before, first] = speculation_->before.try_emplace(bundle, bundle_slots_[index_of(bundle)]);
  if (first) slots_->hold(before->second);
}

void Executor::accept() {
  std::optional<SlotSnapshot> commit;
  {
    const std::lock_guard lock(speculation_mutex_);
    SPILLWAY_CHECK(speculation_ && speculation_->run != nullptr, "there is no run to accept");
    for (const auto& [bundle, slots] : speculation_->before) slots_->release(slots);
    commit = std::move(speculation_->commit);
    speculation_.reset();
  }
  if (commit) options_.on_commit(std::move(*commit));
}

void Executor::revert() {
  drain();
  const std::lock_guard lock(speculation_mutex_);
  SPILLWAY_CHECK(speculation_ && speculation_->run != nullptr, "there is no run to take back");
  if (speculation_->commit) slots_->release(speculation_->commit->slots);
  std::erase_if(in_memory_, [&](const auto& held) { return speculation_->bundles[index_of(held.first.bundle)]; });
  for (auto& [bundle, slots] : speculation_->before) {
    slots_->release(bundle_slots_[index_of(bundle)]);
    on_disk_[index_of(bundle)] = !slots.empty();
    bundle_slots_[index_of(bundle)] = std::move(slots);
  }
  speculation_.reset();
}

}  // namespace spillway
