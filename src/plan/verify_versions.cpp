// What the verifier knows of the bytes: which version of a bundle lies where, and which values it holds.
#include <algorithm>

#include "base/error.h"
#include "plan/verifier.h"

namespace spillway {

bool Verifier::writes_to(const Instr& instr, StayId id) const {
  const BundleId bundle = plan_.stays[index_of(id)].bundle;
  for (const Operand& write : program_.ops[index_of(instr.op)].writes) {
    if (places_[index_of(write.first)].bundle == bundle) return true;
  }
  return false;
}

// A copy on disk is written by one move at a time, and read by none meanwhile.
bool Verifier::check_disk(const Instr& instr, const Clock& start, std::int32_t position, const std::string& who) {
  const BundleId id = plan_.stays[index_of(instr.stays.front())].bundle;
  Clock& moved = bundles_[index_of(id)].moved;
  for (const LaneId lane : {LaneId::read, LaneId::write}) {
    const auto l = static_cast<std::size_t>(lane);
    if ((instr.kind == Instr::Kind::write || lane == LaneId::write) && moved[l] > start[l]) {
      return fail("{} does not wait for {} instruction {} of bundle {}", who, name_of(lane), moved[l] - 1,
                  index_of(id));
    }
  }
  moved[static_cast<std::size_t>(instr.lane)] = position + 1;
  return true;
}

bool Verifier::check_read(const Instr& instr, const std::string& who) {
  const BundleId id = plan_.stays[index_of(instr.stays.front())].bundle;
  if (bundles_[index_of(id)].on_disk < 0) return fail("{} reads bundle {}, which is not on disk", who, index_of(id));
  return true;
}

bool Verifier::check_write(const Instr& instr, const std::string& who) {
  const BundleId id = plan_.stays[index_of(instr.stays.front())].bundle;
  BundleLog& bundle = bundles_[index_of(id)];
  if (residence(instr.stays.front()).version != bundle.version) {
    return fail("{} writes an old version of bundle {}", who, index_of(id));
  }
  bundle.on_disk = bundle.version;
  return true;
}

// What is copied down is the newest; what comes up must be by the time that something uses it.
bool Verifier::check_copy(StayId above, StayId below, MemoryId from, const std::string& who) {
  const bool up = from == MemoryId::host;
  const std::int64_t version = residence(up ? below : above).version;
  const std::size_t bundle = index_of(plan_.stays[index_of(above)].bundle);
  if (version < 0) return fail("{} copies bundle {}, which is not there", who, bundle);
  if (!up && version != bundles_[bundle].version) return fail("{} copies an old version of bundle {}", who, bundle);
  residence(up ? above : below).version = version;
  return true;
}

// All writes before it in its lane are done, so what was written last of each bundle is what the commit holds.
bool Verifier::check_commit(const Instr& instr, const std::string& who) {
  if (instr.lane != LaneId::write || !committed_.empty()) return fail("{} is a commit out of place", who);
  for (std::int32_t b = 0; b < layout_.state_bundles; ++b) {
    const BundleLog& bundle = bundles_[static_cast<std::size_t>(b)];
    committed_.push_back(bundle.version);
    if (!layout_.bundles[static_cast<std::size_t>(b)].committed || bundle.on_disk == bundle.version) continue;
    return fail("{} commits bundle {}, which is old on disk", who, b);
  }
  return true;
}

bool Verifier::check_run(const Instr& instr, const Clock& start, std::int32_t position, const std::string& who) {
  const Op& op = program_.ops[index_of(instr.op)];
  const auto touch = [&](const Operand& operand, bool writes) {
    if (!operand.exists()) return true;
    for (std::size_t k = 0; k < static_cast<std::size_t>(operand.count); ++k) {
      const auto value = static_cast<ValueId>(index_of(operand.first) + k);
      const bool right = places_[index_of(value)].bundle == BundleId::none
                             ? check_outside(instr, value, writes, start, position, who)
                             : check_value(instr, value, writes, who);
      if (!right) return false;
    }
    return true;
  };
  for (const Operand& read : op.reads) {
    if (!touch(read, false)) return false;
  }
  std::vector<BundleId> changed;
  for (const Operand& write : op.writes) {
    if (!touch(write, true)) return false;
    const BundleId bundle = places_[index_of(write.first)].bundle;
    if (bundle != BundleId::none && std::find(changed.begin(), changed.end(), bundle) == changed.end()) {
      changed.push_back(bundle);
    }
  }
  for (const BundleId id : changed) {
    at(plan_.memory_of(instr.lane), id).version = ++bundles_[index_of(id)].version;
  }
  return true;
}

// An output lies outside the pages, so an op that reads it on another processor has to wait for the op that makes it.
bool Verifier::check_outside(const Instr& instr, ValueId id, bool writes, const Clock& start, std::int32_t position,
                             const std::string& who) {
  const auto lane = static_cast<std::size_t>(instr.lane);
  if (writes) {
    outputs_[id] = {lane, position};
    return true;
  }
  const auto made = outputs_.find(id);
  if (made == outputs_.end() || made->second.first == lane || start[made->second.first] > made->second.second) {
    return true;
  }
  return fail("{} does not wait for what makes %{}", who, index_of(id));
}

bool Verifier::check_value(const Instr& instr, ValueId id, bool writes, const std::string& who) {
  const Place& place = places_[index_of(id)];
  BundleLog& bundle = bundles_[index_of(place.bundle)];
  const bool named = std::any_of(instr.stays.begin(), instr.stays.end(),
                                 [&](StayId stay) { return plan_.stays[index_of(stay)].bundle == place.bundle; });
  if (!named) return fail("{} touches value %{} without naming its stay", who, index_of(id));
  if (at(plan_.memory_of(instr.lane), place.bundle).version != bundle.version) {
    return fail("{} sees an old version of bundle {}", who, index_of(place.bundle));
  }
  const std::int64_t end = place.offset_bytes + program_.value(id).type.bytes();
  if (!writes) return check_holds(bundle, id, place.offset_bytes, end, who);
  auto next = bundle.values.lower_bound(place.offset_bytes);
  if (next != bundle.values.begin() && std::prev(next)->second.first > place.offset_bytes) --next;
  while (next != bundle.values.end() && next->first < end) next = bundle.values.erase(next);
  bundle.values[place.offset_bytes] = {end, id};
  return true;
}

bool Verifier::check_holds(const BundleLog& bundle, ValueId id, std::int64_t begin, std::int64_t end,
                           const std::string& who) {
  const auto held = bundle.values.find(begin);
  if (held != bundle.values.end() && held->second == std::pair(end, id)) return true;
  if (held == bundle.values.end() && !bundle.dead && program_.value(id).kind == ValueKind::state_in) return true;
  return fail("{} reads value %{}, whose bytes hold something else", who, index_of(id));
}

}  // namespace spillway
