// The normalizer of tokenizer.json: rewrites text before it is cut and encoded.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer_fields.h"
#include "text/tokenizer_pattern.h"

namespace spillway {

enum class UnicodeForm { nfc, nfd, nfkc, nfkd };

// `text` (well-formed UTF-8) in a normal form of Unicode.
std::string normalize_unicode(std::string_view text, UnicodeForm form);

class Normalizer {
 public:
  Normalizer() = default;
  // `value` may be null. Understands Prepend, Replace, NFC, NFD, NFKC, NFKD and Sequence; throws UserError on others.
  Normalizer(const nlohmann::json& value, const std::string& where);

  bool changes_nothing() const { return steps_.empty(); }
  std::string apply(std::string_view text) const;

 private:
  struct Prepend {
    std::string text;
  };
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  using Step = std::variant<Prepend, Replace, UnicodeForm>;
  void add(const Fields& fields, int depth);

  std::vector<Step> steps_;
};

// The text with each match replaced.
std::string replace_matches(std::string_view text, const Pattern& pattern, std::string_view content);

// How deep a Sequence may hold a Sequence.
inline constexpr int kDeepestSequence = 8;

}  // namespace spillway
