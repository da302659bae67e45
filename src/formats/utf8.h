// Repair of text that is not UTF-8: each longest wrong sequence becomes U+FFFD, as other tools do, and is counted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace spillway {

// Fed in blocks; a character cut by the end of a block is completed by the next one.
class Utf8Repair {
 public:
  // Appends the repaired text to `out`.
  void feed(std::string_view block, std::string& out);
  // The text ends here: what is left of a cut character is wrong.
  void end(std::string& out);
  std::int64_t replaced() const { return replaced_; }

 private:
  std::string carry_;  // at most 3 bytes
  std::int64_t replaced_ = 0;
};

// The number of bytes of the character at the begin of `text`; 0: `text` ends inside a character that is right so far;
// negative: the first -n bytes are not UTF-8.
int utf8_length(std::string_view text);

bool is_utf8(std::string_view text);

}  // namespace spillway
