// The decoder of tokenizer.json: from tokens back to text, a token at a time, so that a whole text and a stream take
// the same way.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer_fields.h"
#include "text/tokenizer_pattern.h"

namespace spillway {

class TokenDecoder {
 public:
  TokenDecoder() = default;
  // `value` may be null: tokens are then joined with a space, as the Hugging Face library does. Understands ByteLevel,
  // Replace, ByteFallback, Fuse, Strip, Metaspace and Sequence in the orders that can be streamed; throws UserError on
  // others.
  TokenDecoder(const nlohmann::json& value, const std::string& where);

  // Where a text stands. `text` is complete and well-formed; `bytes` waits for more.
  struct State {
    std::string text;
    std::string bytes;
    std::int64_t tokens = 0;
    std::int64_t stripped = 0;  // characters taken off the begin of the text
    bool strips = true;         // whether the begin of the text may still lose more
  };
  // Adds a token's bytes to the state. With `eager`, characters that are complete move to `text` at once; without, a
  // run of byte tokens waits for its end, because the Hugging Face library replaces each byte of a run that is
  // ill-formed anywhere.
  void push(std::string_view token, bool eager, State& state) const;
  // No more tokens: what still waits is ill-formed or complete.
  void finish(State& state) const;

 private:
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  struct Strip {
    std::string content;  // one character
    std::uint32_t start, stop;
  };
  struct Metaspace {
    std::string replacement;
    bool drops_first;
  };
  using Step = std::variant<Replace, Strip, Metaspace>;

  void add(const Fields& fields, int depth);
  void add_strip(const Fields& fields);
  void append_text(std::string_view text, State& state) const;
  void release_bytes(bool eager, State& state) const;

  std::vector<Step> steps_;         // on each token by itself
  std::vector<Strip> text_strips_;  // on the begin of the whole text
  bool joins_with_space_ = true;
  bool byte_level_ = false;
  bool byte_fallback_ = false;
  bool fused_ = false;
};

}  // namespace spillway
