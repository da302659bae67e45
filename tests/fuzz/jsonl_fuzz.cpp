// One line of a JSON lines file; the text it gives is valid UTF-8. UserError is the only exception allowed.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "formats/jsonl.h"
#include "formats/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  [[maybe_unused]] const std::span input(data, size);
  try {
    const std::string line(input.begin(), input.end());
    std::string_view text_left;
    const std::string text = spillway::parse_jsonl_line(line, "fuzz", 1).text;
    for (text_left = text; !text_left.empty();) {
      const int length = spillway::utf8_length(text_left);
      SPILLWAY_CHECK(length > 0, "length {}", length);
      text_left.remove_prefix(static_cast<std::size_t>(length));
    }
  } catch (const spillway::UserError&) {
    return 0;
  }
  return 0;
}
