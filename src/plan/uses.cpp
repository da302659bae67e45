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
  std::vector<std::int32_t> next(first_touch_.begin(), first_touch_.end() - 1);
  std::int64_t balance = 0;
  for (std::size_t s = 0; s < program_.uses.size(); ++s) {
    for (const Use& use : program_.uses[s]) {
      const auto touch = static_cast<std::size_t>(next[index_of(use.bundle)]++);
      touches_[touch] = static_cast<std::int32_t>(s);
      creates_[touch] = use.creates;
      if (use.creates) balance += layout.pages_of(use.bundle);
      if (use.creates || use.writes) last_change_[index_of(use.bundle)] = static_cast<std::int32_t>(s);
    }
    balance_.push_back(balance);
    for (const Use& use : program_.uses[s]) balance -= use.ends ? layout.pages_of(use.bundle) : 0;
  }
  most_.push_back(balance_);
  for (std::size_t width = 1; 2 * width <= balance_.size(); width *= 2) {
    const std::vector<std::int64_t>& half = most_.back();
    std::vector<std::int64_t> whole;
    for (std::size_t s = 0; s + width < half.size(); ++s) whole.push_back(std::max(half[s], half[s + width]));
    most_.push_back(std::move(whole));
  }
}

std::int32_t Uses::next(BundleId bundle, std::int32_t s) const {
  const auto begin = touches_.begin() + first_touch_[index_of(bundle)];
  const auto end = touches_.begin() + first_touch_[index_of(bundle) + 1];
  const auto next = std::upper_bound(begin, end, s);
  if (next != end) return *next;
  const bool again =
      index_of(bundle) < static_cast<std::size_t>(layout_.state_bundles) && !program_.dead_on_entry[index_of(bundle)];
  return again && begin != end ? segments_ + *begin : never_used;
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
