#include "formats/utf8.h"

#include <algorithm>
#include <cstdlib>

namespace spillway {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";  // U+FFFD

unsigned byte_at(std::string_view text, std::size_t i) { return static_cast<unsigned char>(text[i]); }

// Length of the character that a first byte announces, and the range of its second byte (Unicode, table 3-7): overlong
// forms, surrogates and numbers above U+10FFFF are wrong from the second byte on. Length 0: no first byte.
struct Announced {
  int length;
  unsigned second_min;
  unsigned second_max;
};

Announced announced_by(unsigned first) {
  if (first < 0x80) return {1, 0, 0};
  if (first < 0xC2) return {0, 0, 0};
  if (first < 0xE0) return {2, 0x80, 0xBF};
  if (first == 0xE0) return {3, 0xA0, 0xBF};
  if (first == 0xED) return {3, 0x80, 0x9F};
  if (first < 0xF0) return {3, 0x80, 0xBF};
  if (first == 0xF0) return {4, 0x90, 0xBF};
  if (first < 0xF4) return {4, 0x80, 0xBF};
  if (first == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

std::size_t ascii_prefix(std::string_view text) {
  const auto* end = std::find_if(text.begin(), text.end(), [](char c) { return static_cast<signed char>(c) < 0; });
  return static_cast<std::size_t>(end - text.begin());
}

}  // namespace

int utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const Announced character = announced_by(byte_at(text, 0));
  if (character.length == 0) return -1;
  for (int i = 1; i < character.length; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (at == text.size()) return 0;
    const unsigned min = i == 1 ? character.second_min : 0x80;
    const unsigned max = i == 1 ? character.second_max : 0xBF;
    if (byte_at(text, at) < min || byte_at(text, at) > max) return -i;
  }
  return character.length;
}

void Utf8Repair::feed(std::string_view block, std::string& out) {
  std::string joined;
  if (!carry_.empty()) {
    joined = carry_;
    joined += block;
    block = joined;
    carry_.clear();
  }
  while (!block.empty()) {
    const std::size_t ascii = ascii_prefix(block);
    out += block.substr(0, ascii);
    block.remove_prefix(ascii);
    const int length = utf8_length(block);
    if (length == 0) {
      carry_ = block;
      return;
    }
    if (length > 0) {
      out += block.substr(0, static_cast<std::size_t>(length));
    } else {
      out += replacement;
      ++replaced_;
    }
    block.remove_prefix(static_cast<std::size_t>(std::abs(length)));
  }
}

void Utf8Repair::end(std::string& out) {
  if (carry_.empty()) return;
  out += replacement;
  ++replaced_;
  carry_.clear();
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const int length = utf8_length(text);
    if (length <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(length));
  }
  return true;
}

}  // namespace spillway
