#include "text/dataset_cut.h"

#include <algorithm>
#include <array>

namespace spillway {
namespace {

// Encodings of this much text on each side tell whether a cut is good. Longer than any word of a vocabulary.
constexpr std::size_t context_bytes = 256;
// Places tried before a cut is forced, of each kind.
constexpr int tries = 64;

bool is_character_begin(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

bool is_letter_or_digit(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string_view context_before(std::string_view text, std::size_t at) {
  std::size_t begin = at > context_bytes ? at - context_bytes : 0;
  while (begin < at && !is_character_begin(text[begin])) ++begin;
  return text.substr(begin, at - begin);
}

std::string_view context_after(std::string_view text, std::size_t at) {
  std::size_t end = std::min(text.size(), at + context_bytes);
  while (end > at && end < text.size() && !is_character_begin(text[end])) --end;
  return text.substr(at, end - at);
}

bool keeps_ids(std::string_view text, const Cut& cut, const Encoder& encoder) {
  const std::string_view left = context_before(text, cut.left_bytes);
  const std::string_view right = context_after(text, cut.right_begin);
  const std::string_view both(left.data(), static_cast<std::size_t>(right.data() + right.size() - left.data()));
  std::vector<std::uint32_t> apart = encoder.encode(left);
  const std::vector<std::uint32_t> right_ids = encoder.encode(right);
  apart.insert(apart.end(), right_ids.begin(), right_ids.end());
  return apart == encoder.encode(both);
}

// Before a line end or space that follows a letter or digit: patterns that split text into words end a word there.
bool find_kept(std::string_view text, char separator, const Encoder& encoder, Cut& cut) {
  int tried = 0;
  for (std::size_t at = text.size() - context_bytes; at > 0 && tried < tries; --at) {
    if (text[at] != separator || !is_letter_or_digit(text[at - 1])) continue;
    cut = {.left_bytes = at, .right_begin = at};
    if (keeps_ids(text, cut, encoder)) return true;
    ++tried;
  }
  return false;
}

// At a single space between words, which is dropped.
bool find_dropped(std::string_view text, const Encoder& encoder, Cut& cut) {
  int tried = 0;
  for (std::size_t at = text.size() - context_bytes; at > 0 && tried < tries; --at) {
    if (text[at] != ' ' || !is_letter_or_digit(text[at - 1]) || !is_letter_or_digit(text[at + 1])) continue;
    cut = {.left_bytes = at, .right_begin = at + 1};
    if (keeps_ids(text, cut, encoder)) return true;
    ++tried;
  }
  return false;
}

}  // namespace

Cut find_cut(std::string_view text, const Encoder& encoder) {
  Cut cut;
  if (find_kept(text, '\n', encoder, cut) || find_kept(text, ' ', encoder, cut) || find_dropped(text, encoder, cut)) {
    return cut;
  }
  // Writing without spaces: any character that keeps the ids will do.
  std::size_t at = text.size() - context_bytes;
  for (int tried = 0; tried < tries; ++tried, --at) {
    while (!is_character_begin(text[at])) --at;
    cut = {.left_bytes = at, .right_begin = at};
    if (keeps_ids(text, cut, encoder)) return cut;
  }
  cut.forced = true;
  return cut;
}

}  // namespace spillway
