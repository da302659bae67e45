#include "text/tokenizer_added.h"

#include <utf8proc.h>

#include <algorithm>
#include <numeric>

#include "text/utf8.h"

namespace spillway {
namespace {

// \w of Unicode's UTS 18: alphabetic, mark, decimal digit, connector or joiner.
bool is_word_character(char32_t c) {
  const bool alphabetic_symbol = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                                 (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  if (alphabetic_symbol || c == 0x200C || c == 0x200D) return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return false;
  }
}

bool touches_a_word(std::string_view text, std::size_t begin, std::size_t end) {
  return (begin > 0 && is_word_character(code_point_before(text, begin).value)) ||
         (end < text.size() && is_word_character(code_point_at(text, end).value));
}

std::size_t skip_space_left(std::string_view text, std::size_t begin) {
  while (begin > 0) {
    const CodePoint before = code_point_before(text, begin);
    if (!is_white_space(before.value)) break;
    begin -= before.size_bytes;
  }
  return begin;
}

std::size_t skip_space_right(std::string_view text, std::size_t end) {
  while (end < text.size()) {
    const CodePoint after = code_point_at(text, end);
    if (!is_white_space(after.value)) break;
    end += after.size_bytes;
  }
  return end;
}

}  // namespace

StringFinder::StringFinder(std::vector<std::string> strings) : of_first_byte_(256, {0, 0}) {
  for (std::size_t i = 0; i < strings.size(); ++i) {
    if (!strings[i].empty()) sorted_.emplace_back(std::move(strings[i]), i);
  }
  std::sort(sorted_.begin(), sorted_.end());
  for (std::uint32_t i = 0; i < sorted_.size(); ++i) {
    auto& range = of_first_byte_[byte_at(sorted_[i].first, 0)];
    if (range.second == 0) range.first = i;
    range.second = i + 1;
  }
}

// Narrows the sorted range by one byte at a time; a string that ends here is the first of its range.
bool StringFinder::longest_at(std::string_view text, std::size_t at, Match& match) const {
  auto [low, high] = of_first_byte_[byte_at(text, at)];
  bool found = false;
  for (std::size_t length = 1; low < high; ++length) {
    if (sorted_[low].first.size() == length) {
      match = {at, at + length, sorted_[low].second};
      found = true;
      while (low < high && sorted_[low].first.size() == length) ++low;
    }
    if (at + length == text.size()) break;
    const std::uint8_t byte = byte_at(text, at + length);
    const auto begin = sorted_.begin() + low;
    const auto end = sorted_.begin() + high;
    const auto first = std::partition_point(begin, end, [&](const auto& s) { return byte_at(s.first, length) < byte; });
    const auto last = std::partition_point(first, end, [&](const auto& s) { return byte_at(s.first, length) == byte; });
    high = static_cast<std::uint32_t>(last - sorted_.begin());
    low = static_cast<std::uint32_t>(first - sorted_.begin());
  }
  return found;
}

bool StringFinder::find(std::string_view text, std::size_t from, Match& match) const {
  if (sorted_.empty()) return false;
  for (std::size_t at = from; at < text.size(); ++at) {
    if (of_first_byte_[byte_at(text, at)].second != 0 && longest_at(text, at, match)) return true;
  }
  return false;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer) : tokens_(std::move(tokens)) {
  std::stable_partition(tokens_.begin(), tokens_.end(), [](const AddedToken& token) { return token.special; });
  by_id_.resize(tokens_.size());
  std::iota(by_id_.begin(), by_id_.end(), std::size_t{0});
  by_content_ = by_id_;
  std::stable_sort(by_id_.begin(), by_id_.end(),
                   [&](std::size_t a, std::size_t b) { return tokens_[a].id < tokens_[b].id; });
  std::stable_sort(by_content_.begin(), by_content_.end(),
                   [&](std::size_t a, std::size_t b) { return tokens_[a].content < tokens_[b].content; });
  raw_ = make_group(false, normalizer);
  normalized_ = make_group(true, normalizer);
}

AddedTokens::Group AddedTokens::make_group(bool normalized, const Normalizer& normalizer) const {
  Group group;
  std::vector<std::string> strings;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i].normalized != normalized) continue;
    strings.push_back(normalized ? normalizer.apply(tokens_[i].content) : tokens_[i].content);
    group.token_of.push_back(i);
  }
  group.finder = StringFinder(std::move(strings));
  return group;
}

const AddedToken* AddedTokens::with_id(TokenId id) const {
  const auto found =
      std::partition_point(by_id_.begin(), by_id_.end(), [&](std::size_t index) { return tokens_[index].id < id; });
  return found != by_id_.end() && tokens_[*found].id == id ? &tokens_[*found] : nullptr;
}

const AddedToken* AddedTokens::with_content(std::string_view content) const {
  const auto found = std::partition_point(by_content_.begin(), by_content_.end(),
                                          [&](std::size_t index) { return tokens_[index].content < content; });
  return found != by_content_.end() && tokens_[*found].content == content ? &tokens_[*found] : nullptr;
}

void AddedTokens::split(std::string_view text, bool normalized, const Part& part) const {
  const Group& group = normalized ? normalized_ : raw_;
  std::size_t covered = 0;
  StringFinder::Match match;
  for (std::size_t from = 0; group.finder.find(text, from, match); from = match.end) {
    const AddedToken& token = tokens_[group.token_of[match.index]];
    if (token.single_word && touches_a_word(text, match.begin, match.end)) continue;
    std::size_t begin = match.begin;
    std::size_t end = match.end;
    if (token.lstrip) begin = std::max(covered, skip_space_left(text, begin));
    if (token.rstrip) end = skip_space_right(text, end);
    if (covered < begin) part(covered, begin, nullptr);
    part(begin, end, &token);
    covered = end;
  }
  if (covered < text.size()) part(covered, text.size(), nullptr);
}

}  // namespace spillway
