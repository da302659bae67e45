// Text of a file inside an error message.
#pragma once

#include <string>
#include <string_view>

namespace spillway {

// At most 120 bytes of `text`, on one line and printable, so that a message stays a sentence whatever the file holds.
inline std::string shown(std::string_view text) {
  constexpr std::size_t limit = 120;
  std::string result(text.substr(0, limit));
  // Bytes of 128 and more stay: names may be in any language. One cut in its middle shows as one odd character.
  for (char& c : result) {
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
  }
  return text.size() > limit ? result + "…" : result;
}

}  // namespace spillway
