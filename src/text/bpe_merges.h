// Which pairs of tokens join, and in which order: a list of merges and a hash of indices into it.
#pragma once

#include <cstdint>
#include <vector>

#include "text/bpe_vocabulary.h"

namespace spillway {

class Merges {
 public:
  struct Merge {
    TokenId left, right, result;
  };

  // Call add() for each merge in the file's order, then seal() once. A pair that is given twice keeps its last place,
  // as the Hugging Face library has it.
  void add(const Merge& merge) { list_.push_back(merge); }
  void seal();

  // The rank of the pair's merge (its place in the file, lower joins first), or kNoMerge.
  static constexpr std::uint32_t kNoMerge = ~std::uint32_t{0};
  std::uint32_t rank(TokenId left, TokenId right) const {
    for (std::size_t slot = first_slot(left, right); slots_[slot] != kNoMerge;) {
      const Merge& merge = list_[slots_[slot]];
      if (merge.left == left && merge.right == right) return slots_[slot];
      slot = slot + 1 == slots_.size() ? 0 : slot + 1;
    }
    return kNoMerge;
  }
  TokenId result(std::uint32_t rank) const { return list_[rank].result; }
  const std::vector<Merge>& list() const { return list_; }

 private:
  std::size_t first_slot(TokenId left, TokenId right) const {
    const std::uint64_t hash = ((std::uint64_t{left} << 32 | right) ^ 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u;
    return static_cast<std::size_t>(((hash ^ hash << 29) >> 32) * slots_.size() >> 32);
  }

  std::vector<Merge> list_;
  std::vector<std::uint32_t> slots_;
};

}  // namespace spillway
