#include "plan/uses.h"

#include <algorithm>
#include <bit>

namespace spillway {

Uses::Uses(const Layout& layout, std::int32_t program)
    : layout_(layout),
      program_(layout.programs[static_cast<std::size_t>(program)]),
      segments_(program_.segments.count()),
      first_touch_(layout.bundles.size() + 1, 0),
      last_change_(layout.bundles.size(), -1) {
  for (const auto& uses : program_.uses) {
    for (const Use& use : uses) ++first_touch_[index_of(use.bundle) + 1];
  }
  for (std::size_t b = 1; b < first_touch_.size(); ++b) first_touch_[b] += first_touch_[b - 1];
  touches_.resize(static_cast<std::size_t>(first_touch_.back()));
  creates_.resize(touches_.size());
  const auto is_below = [](const std::vector<Use>& uses) { return !uses.empty() && uses.front().below; };
  if (std::any_of(program_.uses.begin(), program_.uses.end(), is_below)) {
    below_.resize(touches_.size());
    changes_below_.resize(touches_.size());
  }
  std::vector<std::int32_t> next(first_touch_.begin(), first_touch_.end() - 1);
  std::int64_t balance = 0;
  for (std::size_t s = 0; s < program_.uses.size(); ++s) {
    for (const Use& use : program_.uses[s]) {
      const auto touch = static_cast<std::size_t>(next[index_of(use.bundle)]++);
      touches_[touch] = static_cast<std::int32_t>(s);
      if (use.creates || use.writes) last_change_[index_of(use.bundle)] = static_cast<std::int32_t>(s);
      if (use.below) {
        below_[touch] = true;
        changes_below_[touch] = use.creates || use.writes;
        continue;
      }
      creates_[touch] = use.creates;
      if (use.creates) balance += layout.pages_of(use.bundle);
    }
    balance_.push_back(balance);
    for (const Use& use : program_.uses[s]) {
      const bool leaves = use.leaves && !layout.bundles[index_of(use.bundle)].state;
      balance -= !use.below && (use.ends || leaves) ? layout.pages_of(use.bundle) : 0;
    }
  }
  most_.push_back(balance_);
  for (std::size_t width = 1; 2 * width <= balance_.size(); width *= 2) {
    const std::vector<std::int64_t>& half = most_.back();
    std::vector<std::int64_t> whole;
    for (std::size_t s = 0; s + width < half.size(); ++s) whole.push_back(std::max(half[s], half[s + width]));
    most_.push_back(std::move(whole));
  }
}

// Its index, and its segment; -1 and never_used where there is none.
std::int32_t Uses::next_touch(BundleId bundle, std::int32_t s, std::int32_t& segment) const {
  const auto begin = touches_.begin() + first_touch_[index_of(bundle)];
  const auto end = touches_.begin() + first_touch_[index_of(bundle) + 1];
  const auto next = std::upper_bound(begin, end, s);
  if (next != end) {
    segment = *next;
    return static_cast<std::int32_t>(next - touches_.begin());
  }
  const bool again =
      index_of(bundle) < static_cast<std::size_t>(layout_.state_bundles) && !program_.dead_on_entry[index_of(bundle)];
  segment = again && begin != end ? segments_ + *begin : never_used;
  return segment == never_used ? -1 : first_touch_[index_of(bundle)];
}

std::int32_t Uses::next(BundleId bundle, std::int32_t s) const {
  std::int32_t segment = never_used;
  next_touch(bundle, s, segment);
  return segment;
}

bool Uses::next_is_below(BundleId bundle, std::int32_t s) const {
  if (below_.empty()) return false;
  std::int32_t segment = never_used;
  const std::int32_t touch = next_touch(bundle, s, segment);
  return touch >= 0 && below_[static_cast<std::size_t>(touch)];
}

bool Uses::changes_below(BundleId bundle, std::int32_t s, std::int32_t j) const {
  if (below_.empty()) return false;
  for (std::int32_t t = first_touch_[index_of(bundle)]; t < first_touch_[index_of(bundle) + 1]; ++t) {
    if (!changes_below_[static_cast<std::size_t>(t)]) continue;
    const std::int32_t changed = touches_[static_cast<std::size_t>(t)];
    if ((changed >= s && changed <= j) || changed + segments_ <= j) return true;
  }
  return false;
}

bool Uses::can_be_read(BundleId bundle, std::int32_t s, std::int32_t j) const {
  for (std::int32_t t = first_touch_[index_of(bundle)]; t < first_touch_[index_of(bundle) + 1]; ++t) {
    if (!creates_[static_cast<std::size_t>(t)]) continue;
    const std::int32_t created = touches_[static_cast<std::size_t>(t)];
    if ((created > s && created <= j) || created + segments_ <= j) return false;
  }
  return true;
}

std::int64_t Uses::pages_to_create(std::int32_t s, std::int32_t j) const {
  const std::int32_t last = std::min(j, segments_ - 1);
  if (last <= s) return 0;
  const auto from = static_cast<std::size_t>(s) + 1;
  const auto count = static_cast<std::size_t>(last) - static_cast<std::size_t>(s);
  const auto level = static_cast<std::size_t>(std::bit_width(count)) - 1;
  const std::int64_t most = std::max(most_[level][from], most_[level][from + count - (std::size_t{1} << level)]);
  return std::max<std::int64_t>(0, most - balance_[static_cast<std::size_t>(s)]);
}

}  // namespace spillway
