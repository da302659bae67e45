#include "text/bpe_merges.h"

namespace spillway {

void Merges::seal() {
  list_.shrink_to_fit();
  slots_.assign(list_.size() * 4 / 3 + 8, kNoMerge);
  for (std::size_t i = 0; i < list_.size(); ++i) {
    std::size_t slot = first_slot(list_[i].left, list_[i].right);
    while (slots_[slot] != kNoMerge) {
      const Merge& there = list_[slots_[slot]];
      if (there.left == list_[i].left && there.right == list_[i].right) break;
      slot = slot + 1 == slots_.size() ? 0 : slot + 1;
    }
    slots_[slot] = static_cast<std::uint32_t>(i);
  }
}

}  // namespace spillway
