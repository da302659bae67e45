#include "text/utf8.h"

#include <algorithm>
#include <array>

namespace spillway {
namespace {

struct Lead {
  std::size_t length;
  std::uint8_t second_low, second_high;
};

// The second byte's range excludes overlong forms, surrogates and what lies beyond U+10FFFF.
Lead lead_of(std::uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step utf8_step(std::string_view text, std::size_t at) {
  const Lead lead = lead_of(byte_at(text, at));
  if (lead.length == 0) return {1, false, false};
  for (std::size_t i = 1; i < lead.length; ++i) {
    if (at + i == text.size()) return {i, false, true};
    const std::uint8_t byte = byte_at(text, at + i);
    const std::uint8_t low = i == 1 ? lead.second_low : 0x80;
    const std::uint8_t high = i == 1 ? lead.second_high : 0xBF;
    if (byte < low || byte > high) return {i, false, false};
  }
  return {lead.length, true, false};
}

bool is_valid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    if (!step.ok) return false;
    at += step.size_bytes;
  }
  return true;
}

std::string replace_bad_utf8(std::string_view text, std::int64_t* replaced) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    if (step.ok) {
      out.append(text.substr(at, step.size_bytes));
    } else {
      out.append("\xEF\xBF\xBD");
      if (replaced != nullptr) ++*replaced;
    }
    at += step.size_bytes;
  }
  return out;
}

std::size_t incomplete_tail_bytes(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const std::size_t at = text.size() - back;
    if ((byte_at(text, at) & 0xC0) == 0x80) continue;
    const Utf8Step step = utf8_step(text, at);
    return step.cut && step.size_bytes == back ? back : 0;
  }
  return 0;
}

CodePoint code_point_at(std::string_view valid, std::size_t at) {
  const std::uint8_t first = byte_at(valid, at);
  if (first < 0x80) return {first, 1};
  const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  char32_t value = first & (0xFFu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) value = value << 6 | (byte_at(valid, at + i) & 0x3Fu);
  return {value, length};
}

CodePoint code_point_before(std::string_view valid, std::size_t end) {
  std::size_t at = end - 1;
  while (at > 0 && (byte_at(valid, at) & 0xC0) == 0x80) --at;
  return code_point_at(valid, at);
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace spillway
