// What the verifier checks at both ends of a plan, and where one plan follows another.
#include <map>

#include "base/error.h"
#include "plan/verifier.h"

namespace spillway {

bool Verifier::enter() {
  if (plan_.entry.dirty.size() != plan_.entry.stays.size() || plan_.exit.dirty.size() != plan_.exit.stays.size()) {
    return fail("a boundary does not say which of its bundles are dirty");
  }
  const auto& dead = layout_.programs[static_cast<std::size_t>(plan_.program)].dead_on_entry;
  for (std::size_t b = 0; b < bundles_.size(); ++b) {
    bundles_[b].dead = b >= static_cast<std::size_t>(layout_.state_bundles) || dead[b];
    if (bundles_[b].dead) bundles_[b].on_disk = -1;
  }
  for (std::size_t i = 0; i < plan_.entry.stays.size(); ++i) {
    const StayId id = plan_.entry.stays[i];
    if (!own(id, Clock{}, "the entry")) return false;
    residence(id).current = id;
    residence(id).version = 0;
    if (plan_.entry.dirty[i]) bundle_of(id).on_disk = -1;
    stays_[index_of(id)].begun = true;
    entered_.insert(id);
  }
  for (std::size_t i = 0; i < plan_.entry.stays.size(); ++i) {  // what the device may hold newer is old in the host
    const Stay& stay = plan_.stays[index_of(plan_.entry.stays[i])];
    if (stay.memory == MemoryId::device && plan_.entry.dirty[i]) at(MemoryId::host, stay.bundle).version = -1;
  }
  return true;
}

bool Verifier::leave() {
  // By memory and state bundle: held at the exit; what is below a memory is new where it is held, or on disk.
  std::vector<bool> held(residences_.size(), false);
  const auto below_is_new = [&](MemoryId memory, BundleId bundle) {
    const bool in_host = memory == MemoryId::device && held[index_in(layout_, {MemoryId::host, bundle})];
    return in_host || bundles_[index_of(bundle)].on_disk == bundles_[index_of(bundle)].version;
  };
  for (const StayId id : plan_.exit.stays) {
    const BundleId of = plan_.stays[index_of(id)].bundle;
    if (!layout_.bundles[index_of(of)].state) return fail("local bundle {} is held at the exit", index_of(of));
    held[index_in(layout_, residence_of(plan_.stays[index_of(id)]))] = true;
    for (const PageId page : plan_.stays[index_of(id)].pages) {
      if (owner_[index_of(page)] != id) return fail("bundle {} has lost a page at the exit", index_of(of));
    }
    if (residence(id).version != bundle_of(id).version) return fail("bundle {} is old at the exit", index_of(of));
  }
  for (std::size_t i = 0; i < plan_.exit.stays.size(); ++i) {
    const Stay& stay = plan_.stays[index_of(plan_.exit.stays[i])];
    if (plan_.exit.dirty[i] || below_is_new(stay.memory, stay.bundle)) continue;
    return fail("bundle {} is dirty at the exit", index_of(stay.bundle));
  }
  const auto& dead = layout_.programs[static_cast<std::size_t>(plan_.program)].dead_on_exit;
  for (std::int32_t b = 0; b < layout_.state_bundles; ++b) {
    const auto id = static_cast<BundleId>(b);
    const BundleLog& bundle = bundles_[index_of(id)];
    if (!committed_.empty() && layout_.bundles[index_of(id)].committed && committed_[index_of(id)] != bundle.version) {
      return fail("bundle {} changes after the commit", b);
    }
    if (dead[index_of(id)] || held[index_in(layout_, {MemoryId::host, id})]) continue;
    if (held[index_in(layout_, {MemoryId::device, id})] || bundle.on_disk == bundle.version) continue;
    return fail("bundle {} is old on disk at the exit", b);
  }
  return true;
}

std::string verify_follows(const Plan& before, const Plan& after, const Layout& layout) {
  std::map<Residence, bool> left;  // dirty
  for (std::size_t i = 0; i < before.exit.stays.size(); ++i) {
    left[residence_of(before.stays[index_of(before.exit.stays[i])])] = before.exit.dirty[i];
  }
  for (std::size_t i = 0; i < after.entry.stays.size(); ++i) {
    const Residence entry = residence_of(after.stays[index_of(after.entry.stays[i])]);
    const auto found = left.find(entry);
    if (found == left.end()) return fmt::format("bundle {} is not left in memory", index_of(entry.bundle));
    if (found->second && !after.entry.dirty[i]) return fmt::format("bundle {} is left dirty", index_of(entry.bundle));
    left.erase(found);
  }
  const auto& dead = layout.programs[static_cast<std::size_t>(after.program)].dead_on_entry;
  const std::vector<bool> dead_below = dead_below_on_entry(after, layout);
  for (const auto& [what, dirty] : left) {
    const std::size_t b = index_of(what.bundle);
    const bool useless = dead[b] || (what.memory == MemoryId::host && dead_below[b]);
    if (dirty && !useless) return fmt::format("bundle {} would be lost", b);
  }
  return {};
}

}  // namespace spillway
