#include <fmt/ranges.h>

#include <charconv>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/file.h"
#include "formats/utf8.h"
#include "session/session.h"
#include "text/tokenizer.h"

namespace spillway {
namespace {

TokenId parse_id(std::string_view text) {
  TokenId id = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (code != std::errc() || end != text.data() + text.size()) {
    throw UserError("ids: '{}' is not a token id; write numbers separated by spaces", text);
  }
  return id;
}

std::vector<TokenId> parse_ids(std::string_view text, std::int64_t vocab_size) {
  std::vector<TokenId> ids;
  constexpr std::string_view separators = " ,\t\r\n[]";
  for (std::size_t at = text.find_first_not_of(separators); at != std::string_view::npos;
       at = text.find_first_not_of(separators, at)) {
    const std::size_t end = std::min(text.find_first_of(separators, at), text.size());
    ids.push_back(parse_id(text.substr(at, end - at)));
    if (ids.back() >= vocab_size) {
      throw UserError("ids: {} is beyond the {} ids of the tokenizer; give ids from 0 to {}", ids.back(), vocab_size,
                      vocab_size - 1);
    }
    at = end;
  }
  return ids;
}

std::string text_of(const TokenizeOptions& options) {
  if (options.has_text) return options.text;
  if (!options.file.empty()) return read_small_file(options.file, gib);
  return fmt::format("{}", fmt::join(options.ids, " "));
}

std::vector<std::string> notes_on(std::string_view text) {
  Utf8Repair repair;
  std::string repaired;
  repair.feed(text, repaired);
  repair.end(repaired);
  if (repair.replaced() == 0) return {};
  return {fmt::format("{} byte sequences of the text were not UTF-8 and became U+FFFD", repair.replaced())};
}

}  // namespace

TokenizeReport run_tokenize(const TokenizeOptions& options, const TextSink& out) {
  validate(options);
  const Tokenizer tokenizer = options.model == "bytes" ? Tokenizer::bytes() : Tokenizer::load(options.model);
  const std::string text = text_of(options);
  if (options.decode) {
    out(tokenizer.decode(parse_ids(text, tokenizer.vocab_size())));
    out("\n");
    return {};
  }
  const std::vector<TokenId> ids = tokenizer.encode(text, options.add_special_tokens);
  out(options.json ? fmt::format("[{}]\n", fmt::join(ids, ", ")) : fmt::format("{}\n", fmt::join(ids, " ")));
  return {notes_on(text)};
}

}  // namespace spillway
