// The added tokens of tokenizer.json: whole strings that are found in the text before the model sees it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/bpe_vocabulary.h"
#include "text/normalizer.h"

namespace spillway {

struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool special = false;      // decoding may skip it
  bool lstrip = false;       // takes the white space on its left
  bool rstrip = false;       // takes the white space on its right
  bool single_word = false;  // only where no word character touches it
  bool normalized = true;    // is looked for in the normalized text
};

// Finds a set of strings: leftmost, then longest.
class StringFinder {
 public:
  // strings[i] has the number i in matches. Empty strings match nothing.
  explicit StringFinder(std::vector<std::string> strings = {});
  struct Match {
    std::size_t begin, end, index;
  };
  // The first match at or after `from`; false if there is none.
  bool find(std::string_view text, std::size_t from, Match& match) const;

 private:
  bool longest_at(std::string_view text, std::size_t at, Match& match) const;

  std::vector<std::pair<std::string, std::size_t>> sorted_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> of_first_byte_;  // range in sorted_
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // Special tokens come before others where both are the same string, as in the Hugging Face library.
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer);

  const std::vector<AddedToken>& all() const { return tokens_; }
  const AddedToken* with_id(TokenId id) const;
  const AddedToken* with_content(std::string_view content) const;

  // Calls part(begin, end, token) for the parts of `text` in order; token is null between tokens. `normalized` chooses
  // which of the tokens are looked for.
  using Part = std::function<void(std::size_t begin, std::size_t end, const AddedToken* token)>;
  void split(std::string_view text, bool normalized, const Part& part) const;

 private:
  struct Group {
    StringFinder finder;
    std::vector<std::size_t> token_of;  // index in tokens_ of the finder's string
  };
  Group make_group(bool normalized, const Normalizer& normalizer) const;

  std::vector<AddedToken> tokens_;       // special ones first
  std::vector<std::size_t> by_content_;  // indices, sorted by content
  std::vector<std::size_t> by_id_;       // indices, sorted by id
  Group raw_, normalized_;
};

}  // namespace spillway
