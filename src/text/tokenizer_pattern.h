// A pattern of tokenizer.json: a literal string, or a regular expression in the dialect of Oniguruma, run by PCRE2.
//
// The two dialects differ in places that would silently change ids. What is known to mean the same is passed on; what
// can be said in PCRE2 is translated (\s is Unicode's White_Space in one and a little more in the other); everything
// else is refused by name.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace spillway {

class Pattern {
 public:
  // Throws UserError, beginning with `where`, if the expression is not understood.
  static Pattern regex(std::string_view expression, std::string_view where);
  // `text` must not be empty.
  static Pattern literal(std::string text);

  // Calls part(begin, end, is_match) for the parts of `text` in order: matches, and what lies between them. Together
  // they cover the text. Throws UserError if the expression exceeds PCRE2's limits on this text. Safe from several
  // threads.
  using Part = std::function<void(std::size_t begin, std::size_t end, bool is_match)>;
  void split(std::string_view text, const Part& part) const;

 private:
  Pattern() = default;
  // Finds the first match at or after `from`.
  bool find(std::string_view text, std::size_t from, std::size_t& begin, std::size_t& end) const;

  std::string source_;
  std::shared_ptr<void> code_;  // pcre2_code; null for a literal
};

// The expression in PCRE2's dialect. Throws as Pattern::regex does.
std::string translate_regex(std::string_view expression, std::string_view where);

}  // namespace spillway
