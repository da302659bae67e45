#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tokenizer_pattern.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "text/utf8.h"

namespace spillway {
namespace {

// As members of a class. White_Space ends with a range, so that a following hyphen stays literal.
constexpr std::string_view kSpace =
    R"(\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x09-\x0d)";
constexpr std::string_view kNotSpace =
    R"(\x00-\x08\x0e-\x1f\x21-\x84\x86-\x9f\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e})"
    R"(\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";

constexpr std::array<std::string_view, 37> kCategories = {
    "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",  "Mc", "Me", "Mn", "N",  "Nd", "Nl",
    "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};

// One walk over the expression, from Oniguruma's dialect to PCRE2's.
class Translation {
 public:
  Translation(std::string_view expression, std::string_view where) : in_(expression), where_(where) {}

  std::string run() {
    while (at_ < in_.size()) {
      if (in_[at_] == '\\') {
        escape();
      } else if (in_class_) {
        class_member();
      } else {
        outside();
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw UserError("{}: the pattern \"{}\" uses {}, which is not supported; use another tokenizer", where_, in_, what);
  }
  bool starts(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  void copy(std::size_t count) {
    out_.append(in_.substr(at_, count));
    at_ += count;
  }

  void escape() {
    if (at_ + 1 == in_.size()) refuse("a backslash at its end");
    const char c = in_[at_ + 1];
    if (c == 's' || c == 'S') return space(c == 's' ? kSpace : kNotSpace);
    if (c == 'p' || c == 'P') return property();
    if (c == 'u') return code_unit();
    if (c == 'v') {
      out_.append("\\x0b");
      at_ += 2;
      return;
    }
    const bool letter_or_digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter_or_digit && std::string_view("dDrntfx").find(c) == std::string_view::npos) {
      refuse(fmt::format("\\{}", c));
    }
    if (static_cast<unsigned char>(c) >= 0x80) refuse("an escaped character beyond ASCII");
    copy(2);
    class_begins_ = false;
  }

  void space(std::string_view members) {
    out_.append(in_class_ ? std::string(members) : fmt::format("[{}]", members));
    at_ += 2;
    class_begins_ = false;
  }

  void code_unit() {
    const std::string_view digits = in_.substr(at_ + 2, 4);
    if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
      refuse("\\u without four hexadecimal digits");
    }
    out_.append(fmt::format("\\x{{{}}}", digits));
    at_ += 6;
    class_begins_ = false;
  }

  // General categories are the same in both; for scripts PCRE2 would take script extensions where Oniguruma does not.
  void property() {
    const std::size_t close = in_.find('}', at_);
    if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{' || close == std::string_view::npos) refuse("\\p without {name}");
    std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    std::string not_sign;
    if (name.starts_with('^')) {
      not_sign = "^";
      name.remove_prefix(1);
    }
    const bool letters =
        name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_") == std::string_view::npos;
    if (name.empty() || !letters) refuse(fmt::format("\\p{{{}}}", name));
    const bool category = std::find(kCategories.begin(), kCategories.end(), name) != kCategories.end();
    out_.append(fmt::format("\\{}{{{}{}{}}}", in_[at_ + 1], not_sign, category ? "" : "sc:", name));
    at_ = close + 1;
    class_begins_ = false;
  }

  void class_member() {
    if (starts("&&")) refuse("&& in a class");
    if (in_[at_] == '[') refuse("a class inside a class");
    if (in_[at_] == ']' && !class_begins_) in_class_ = false;
    class_begins_ = false;
    copy(1);
  }

  void outside() {
    if (in_[at_] == '[') {
      in_class_ = class_begins_ = true;
      copy(starts("[^") ? 2 : 1);
    } else if (in_[at_] == '(') {
      group();
    } else if (in_[at_] == '{') {
      repeat();
    } else if (in_[at_] == '^' || in_[at_] == '$') {
      refuse(fmt::format("the anchor {}", in_[at_]));
    } else {
      copy(1);
    }
  }

  void group() {
    if (starts("(*")) refuse("(*");
    if (starts("(?")) {
      for (const std::string_view known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)", "(?-i:"}) {
        if (starts(known)) return copy(known.size());
      }
      refuse(in_.substr(at_, 3));
    }
    copy(1);
  }

  void repeat() {
    const std::size_t close = in_.find('}', at_);
    if (close == std::string_view::npos || starts("{,")) refuse("{ that is not a count");
    const std::string_view count = in_.substr(at_ + 1, close - at_ - 1);
    if (count.empty() || count.find_first_not_of("0123456789,") != std::string_view::npos) {
      refuse("{ that is not a count");
    }
    const char next = close + 1 < in_.size() ? in_[close + 1] : ' ';
    if (next == '+' || (next == '?' && count.find(',') == std::string_view::npos)) refuse(fmt::format("}}{}", next));
    copy(close + 1 - at_);
  }

  std::string_view in_;
  std::string_view where_;
  std::string out_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  bool class_begins_ = false;
};

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

// What matching needs besides the code, one set for each thread.
struct MatchSpace {
  MatchSpace()
      : data(pcre2_match_data_create(1, nullptr), pcre2_match_data_free),
        context(pcre2_match_context_create(nullptr), pcre2_match_context_free),
        stack(pcre2_jit_stack_create(32 * 1024, 1024 * 1024, nullptr), pcre2_jit_stack_free) {
    if (data == nullptr || context == nullptr) throw std::bad_alloc();
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());  // a null stack means PCRE2's own 32 KiB
  }
  std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data;
  std::unique_ptr<pcre2_match_context, void (*)(pcre2_match_context*)> context;
  std::unique_ptr<pcre2_jit_stack, void (*)(pcre2_jit_stack*)> stack;
};

MatchSpace& match_space() {
  static thread_local MatchSpace space;
  return space;
}

}  // namespace

std::string translate_regex(std::string_view expression, std::string_view where) {
  return Translation(expression, where).run();
}

Pattern Pattern::regex(std::string_view expression, std::string_view where) {
  constexpr std::size_t kLongestExpression = 16 * 1024;
  if (expression.size() > kLongestExpression) {
    throw UserError("{}: a pattern of {} bytes is longer than the {} supported; use another tokenizer", where,
                    expression.size(), kLongestExpression);
  }
  const std::string translated = translate_regex(expression, where);
  const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE error_at = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                   PCRE2_UTF | PCRE2_UCP, &error, &error_at, context.get());
  if (code == nullptr) {
    throw UserError("{}: the pattern \"{}\" does not compile ({}); use another tokenizer", where, expression,
                    pcre2_message(error));
  }
  Pattern pattern;
  pattern.source_ = expression;
  pattern.code_ = std::shared_ptr<void>(code, [](void* p) { pcre2_code_free(static_cast<pcre2_code*>(p)); });
  // Without JIT (a build or a kernel may forbid it) pcre2_match interprets: slower, same matches.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return pattern;
}

Pattern Pattern::literal(std::string text) {
  SPILLWAY_CHECK(!text.empty(), "an empty literal pattern");
  Pattern pattern;
  pattern.source_ = std::move(text);
  return pattern;
}

bool Pattern::find(std::string_view text, std::size_t from, std::size_t& begin, std::size_t& end) const {
  if (code_ == nullptr) {
    begin = text.find(source_, from);
    end = begin + source_.size();
    return begin != std::string_view::npos;
  }
  MatchSpace& space = match_space();
  const int code = pcre2_match(static_cast<const pcre2_code*>(code_.get()), reinterpret_cast<PCRE2_SPTR>(text.data()),
                               text.size(), from, PCRE2_NO_UTF_CHECK, space.data.get(), space.context.get());
  if (code == PCRE2_ERROR_NOMATCH) return false;
  if (code < 0) {
    throw UserError(
        "the tokenizer's pattern \"{}\" gave up at byte {} of a text of {} bytes ({}); split the text there", source_,
        from, text.size(), pcre2_message(code));
  }
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(space.data.get());
  begin = found[0];
  end = found[1];
  SPILLWAY_CHECK(from <= begin && begin <= end && end <= text.size(), "a match of {} to {} from {}", begin, end, from);
  return true;
}

void Pattern::split(std::string_view text, const Part& part) const {
  std::size_t covered = 0;
  std::size_t from = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
  while (from <= text.size() && find(text, from, begin, end)) {
    const bool empty = begin == end;
    // An empty match right behind a match does not count.
    if (!empty || begin != covered || covered == 0) {
      if (begin > covered) part(covered, begin, false);
      part(begin, end, true);
      covered = end;
    }
    from = !empty ? end : end < text.size() ? end + code_point_at(text, end).size_bytes : text.size() + 1;
  }
  if (covered < text.size()) part(covered, text.size(), false);
}

}  // namespace spillway
