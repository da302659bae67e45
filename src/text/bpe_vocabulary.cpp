#include "text/bpe_vocabulary.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "base/error.h"

namespace spillway {

void Vocabulary::add(std::string_view token, TokenId id) {
  SPILLWAY_CHECK(!sealed() && id <= kLargestTokenId, "token id {}", id);
  if (arena_.size() + token.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw UserError("the tokens of a vocabulary take more than 4 GiB; use a smaller tokenizer");
  }
  arena_.append(token);
  ends_.push_back(static_cast<std::uint32_t>(arena_.size()));
  ids_.push_back(id);
}

std::string_view Vocabulary::text_at(std::size_t index) const {
  const std::size_t begin = index == 0 ? 0 : ends_[index - 1];
  return std::string_view(arena_).substr(begin, ends_[index] - begin);
}

std::size_t Vocabulary::first_slot(std::string_view token) const {
  const std::uint64_t hash = std::hash<std::string_view>{}(token);
  return static_cast<std::size_t>((hash >> 32) * slots_.size() >> 32);
}

void Vocabulary::seal(std::string_view where) {
  arena_.shrink_to_fit();
  ends_.shrink_to_fit();
  ids_.shrink_to_fit();
  const TokenId largest = ids_.empty() ? 0 : *std::max_element(ids_.begin(), ids_.end());
  index_of_id_.assign(ids_.empty() ? 0 : largest + std::size_t{1}, kNoToken);
  slots_.assign(ids_.size() * 4 / 3 + 8, kNoToken);
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    if (find(text_at(i)) != kNoToken) throw UserError("{} holds the token \"{}\" twice", where, text_at(i));
    if (index_of_id_[ids_[i]] != kNoToken) {
      throw UserError("{} gives id {} to both \"{}\" and \"{}\"", where, ids_[i], text_at(index_of_id_[ids_[i]]),
                      text_at(i));
    }
    index_of_id_[ids_[i]] = static_cast<std::uint32_t>(i);
    std::size_t slot = first_slot(text_at(i));
    while (slots_[slot] != kNoToken) slot = slot + 1 == slots_.size() ? 0 : slot + 1;
    slots_[slot] = static_cast<std::uint32_t>(i);
  }
}

TokenId Vocabulary::find(std::string_view token) const {
  for (std::size_t slot = first_slot(token); slots_[slot] != kNoToken;) {
    if (text_at(slots_[slot]) == token) return ids_[slots_[slot]];
    slot = slot + 1 == slots_.size() ? 0 : slot + 1;
  }
  return kNoToken;
}

std::optional<std::string_view> Vocabulary::text(TokenId id) const {
  if (id >= index_of_id_.size() || index_of_id_[id] == kNoToken) return std::nullopt;
  return text_at(index_of_id_[id]);
}

}  // namespace spillway
