// Well-formed UTF-8 (Unicode 15, section 3.9, table 3-7): checking, repairing and stepping through it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace spillway {

inline std::uint8_t byte_at(std::string_view text, std::size_t at) { return static_cast<std::uint8_t>(text[at]); }

// What stands at one place of a text that may be ill-formed. Where `ok` is false, `size_bytes` is the length of the
// maximal ill-formed subpart (at least 1), and `cut` says that the text ended inside a sequence that was good so far.
struct Utf8Step {
  std::size_t size_bytes;
  bool ok;
  bool cut;
};
Utf8Step utf8_step(std::string_view text, std::size_t at);

bool is_valid_utf8(std::string_view text);

// `text` with each maximal ill-formed subpart replaced by U+FFFD. Adds the number of replacements to `*replaced` if it
// is given.
std::string replace_bad_utf8(std::string_view text, std::int64_t* replaced = nullptr);

// The number of bytes at the end of `text` that begin a character and do not finish it: 0 to 3.
std::size_t incomplete_tail_bytes(std::string_view text);

// One character of a well-formed text.
struct CodePoint {
  char32_t value;
  std::size_t size_bytes;
};
CodePoint code_point_at(std::string_view valid, std::size_t at);
// The character that ends at `end` (> 0).
CodePoint code_point_before(std::string_view valid, std::size_t end);
void append_utf8(char32_t code_point, std::string& out);

// Unicode's White_Space property.
bool is_white_space(char32_t code_point);

}  // namespace spillway
