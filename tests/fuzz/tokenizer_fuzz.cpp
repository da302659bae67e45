// Bytes as a tokenizer.json: read it, and if it is good, encode and decode a fixed text. UserError is the only
// exception that may come out.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::string_view kText = "Hello, world!  12345 don't \xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x98\x80<s>\n\n\xFFx";
  try {
    const std::string_view json(reinterpret_cast<const char*>(data), size);
    const spillway::Tokenizer tokenizer = spillway::Tokenizer::parse(json, "fuzz");
    const auto ids = tokenizer.encode(kText, true);
    tokenizer.decode(ids);
    spillway::StreamDecoder stream(tokenizer, true);
    for (const spillway::TokenId id : ids) stream.push(id);
    stream.finish();
  } catch (const spillway::UserError&) {
  }
  return 0;
}
