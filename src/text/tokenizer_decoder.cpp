#include "text/tokenizer_decoder.h"

#include <charconv>
#include <optional>

#include "base/error.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"
#include "text/utf8.h"

namespace spillway {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr std::uint32_t kMostStripped = 1000;

// The byte of a token <0x..>.
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(value);
}

// A token that is not wholly in the byte-level alphabet stands for itself.
std::string byte_level_bytes(std::string_view token) {
  std::string bytes;
  for (std::size_t at = 0; at < token.size();) {
    const CodePoint c = code_point_at(token, at);
    const int byte = byte_level_byte(c.value);
    if (byte < 0) return std::string(token);
    bytes.push_back(static_cast<char>(byte));
    at += c.size_bytes;
  }
  return bytes;
}

void strip_token(std::string_view content, std::uint32_t start, std::uint32_t stop, std::string& token) {
  for (std::uint32_t i = 0; i < start && token.starts_with(content); ++i) token.erase(0, content.size());
  for (std::uint32_t i = 0; i < stop && token.ends_with(content); ++i) token.resize(token.size() - content.size());
}

}  // namespace

TokenDecoder::TokenDecoder(const nlohmann::json& value, const std::string& where) {
  if (value.is_null()) return;
  joins_with_space_ = false;
  add(Fields(value, where), 0);
}

void TokenDecoder::add(const Fields& fields, int depth) {
  const std::string& type = fields.text("type");
  if (type == "Sequence") {
    if (depth == kDeepestSequence) fields.refuse("a Sequence nested this deep");
    fields.only({"type", "decoders"});
    for (const Fields& inner : fields.objects("decoders")) add(inner, depth + 1);
    return;
  }
  const bool last_part = fused_ || byte_fallback_ || byte_level_;
  if (type == "Fuse") {
    fields.only({"type"});
    fused_ = true;
  } else if (type == "Strip" && (!last_part || fused_)) {
    add_strip(fields);
  } else if (last_part) {
    fields.refuse("the decoder " + type + " after ByteLevel, ByteFallback or Fuse");
  } else if (type == "ByteLevel") {
    fields.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    byte_level_ = true;
  } else if (type == "ByteFallback") {
    fields.only({"type"});
    byte_fallback_ = true;
  } else if (type == "Replace") {
    fields.only({"type", "pattern", "content"});
    const std::string& content = fields.text("content");
    const bool regex = fields.object("pattern").has("Regex");
    if (regex && content.find('$') != std::string::npos) fields.refuse("$ in the content of a Replace");
    steps_.emplace_back(Replace{fields.pattern("pattern"), content});
  } else if (type == "Metaspace") {
    fields.only({"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"});
    const std::string& replacement = fields.text("replacement");
    if (replacement.empty()) fields.refuse("an empty replacement");
    steps_.emplace_back(Metaspace{replacement, metaspace_prepend_scheme(fields) != "never"});
  } else {
    fields.refuse("the decoder " + type);
  }
}

void TokenDecoder::add_strip(const Fields& fields) {
  fields.only({"type", "content", "start", "stop"});
  const std::string& content = fields.text("content");
  if (content.empty() || code_point_at(content, 0).size_bytes != content.size()) {
    fields.refuse("a Strip of more or less than one character");
  }
  const Strip strip{content, fields.count("start", kMostStripped), fields.count("stop", kMostStripped)};
  if (!fused_) {
    steps_.emplace_back(strip);
    return;
  }
  if (strip.stop > 0) fields.refuse("a Strip at the end of the text");
  if (!text_strips_.empty()) fields.refuse("a second Strip of the text");
  text_strips_.push_back(strip);
}

// The begin of the text loses what Strip takes; everything else is appended.
void TokenDecoder::append_text(std::string_view text, State& state) const {
  if (state.strips && !text_strips_.empty()) {
    const Strip& strip = text_strips_.front();
    while (state.stripped < strip.start && text.starts_with(strip.content)) {
      text.remove_prefix(strip.content.size());
      ++state.stripped;
    }
    if (!text.empty()) state.strips = false;
  }
  state.text.append(text);
}

void TokenDecoder::release_bytes(bool eager, State& state) const {
  std::string& bytes = state.bytes;
  if (bytes.empty()) return;
  if (eager) {
    const std::size_t keep = incomplete_tail_bytes(bytes);
    append_text(replace_bad_utf8(std::string_view(bytes).substr(0, bytes.size() - keep)), state);
    bytes.erase(0, bytes.size() - keep);
  } else if (byte_level_ || is_valid_utf8(bytes)) {
    append_text(replace_bad_utf8(bytes), state);
    bytes.clear();
  } else {
    for (std::size_t i = 0; i < bytes.size(); ++i) append_text(kReplacement, state);
    bytes.clear();
  }
}

void TokenDecoder::push(std::string_view token, bool eager, State& state) const {
  const bool first = state.tokens++ == 0;
  if (joins_with_space_) {
    if (!first) state.text.push_back(' ');
    state.text.append(token);
    return;
  }
  std::string now(token);
  for (const Step& step : steps_) {
    if (const auto* replace = std::get_if<Replace>(&step)) {
      now = replace_matches(now, replace->pattern, replace->content);
    } else if (const auto* strip = std::get_if<Strip>(&step)) {
      strip_token(strip->content, strip->start, strip->stop, now);
    } else {
      const auto& metaspace = std::get<Metaspace>(step);
      const std::string_view content = first && metaspace.drops_first ? "" : " ";
      now = replace_matches(now, Pattern::literal(metaspace.replacement), content);
    }
  }
  const std::optional<char> byte = byte_fallback_ ? fallback_byte(now) : std::nullopt;
  if (byte_level_ || byte.has_value()) {
    state.bytes.append(byte_level_ ? byte_level_bytes(now) : std::string(1, *byte));
    if (eager) release_bytes(true, state);
    return;
  }
  release_bytes(false, state);
  append_text(now, state);
}

void TokenDecoder::finish(State& state) const { release_bytes(false, state); }

}  // namespace spillway
