#include "text/normalizer.h"

#include <utf8proc.h>

#include <map>

#include "base/error.h"
#include "text/utf8.h"

namespace spillway {
namespace {

int options_of(UnicodeForm form) {
  switch (form) {
    case UnicodeForm::nfc: return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    case UnicodeForm::nfd: return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case UnicodeForm::nfkc: return UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    case UnicodeForm::nfkd: return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
  }
  return 0;
}

void append_normalized(std::string_view text, utf8proc_option_t options, std::vector<utf8proc_int32_t>& buffer,
                       std::string& out) {
  const auto decompose = [&] {
    return utf8proc_decompose(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                              static_cast<utf8proc_ssize_t>(text.size()), buffer.data(),
                              static_cast<utf8proc_ssize_t>(buffer.size()), options);
  };
  utf8proc_ssize_t count = decompose();
  SPILLWAY_CHECK(count >= 0, "utf8proc: {}", utf8proc_errmsg(count));
  if (static_cast<std::size_t>(count) > buffer.size()) {
    buffer.resize(static_cast<std::size_t>(count));
    count = decompose();
  }
  count = utf8proc_normalize_utf32(buffer.data(), count, options);
  SPILLWAY_CHECK(count >= 0, "utf8proc: {}", utf8proc_errmsg(count));
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    append_utf8(static_cast<char32_t>(buffer[static_cast<std::size_t>(i)]), out);
  }
}

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

}  // namespace

// ASCII never joins what is before it, so the text may be cut in front of each ASCII character, and runs of ASCII stay
// as they are but for their last character, which a combining mark may follow.
std::string normalize_unicode(std::string_view text, UnicodeForm form) {
  std::string out;
  out.reserve(text.size());
  std::vector<utf8proc_int32_t> buffer(64);
  for (std::size_t at = 0; at < text.size();) {
    std::size_t ascii_end = at;
    while (ascii_end < text.size() && is_ascii(text[ascii_end])) ++ascii_end;
    const std::size_t cut = ascii_end > at && ascii_end < text.size() ? ascii_end - 1 : ascii_end;
    out.append(text.substr(at, cut - at));
    std::size_t end = ascii_end;
    while (end < text.size() && !is_ascii(text[end])) ++end;
    if (end > cut) {
      append_normalized(text.substr(cut, end - cut), static_cast<utf8proc_option_t>(options_of(form)), buffer, out);
    }
    at = end;
  }
  return out;
}

std::string replace_matches(std::string_view text, const Pattern& pattern, std::string_view content) {
  std::string out;
  out.reserve(text.size());
  pattern.split(text, [&](std::size_t begin, std::size_t end, bool is_match) {
    out.append(is_match ? content : text.substr(begin, end - begin));
  });
  return out;
}

Normalizer::Normalizer(const nlohmann::json& value, const std::string& where) {
  if (!value.is_null()) add(Fields(value, where), 0);
}

void Normalizer::add(const Fields& fields, int depth) {
  static const std::map<std::string, UnicodeForm, std::less<>> kForms = {
      {"NFC", UnicodeForm::nfc}, {"NFD", UnicodeForm::nfd}, {"NFKC", UnicodeForm::nfkc}, {"NFKD", UnicodeForm::nfkd}};
  const std::string& type = fields.text("type");
  if (type == "Sequence") {
    if (depth == kDeepestSequence) fields.refuse("a Sequence nested this deep");
    fields.only({"type", "normalizers"});
    for (const Fields& inner : fields.objects("normalizers")) add(inner, depth + 1);
  } else if (type == "Prepend") {
    fields.only({"type", "prepend"});
    steps_.emplace_back(Prepend{fields.text("prepend")});
  } else if (type == "Replace") {
    fields.only({"type", "pattern", "content"});
    const std::string& content = fields.text("content");
    // Whether $1 means a group depends on the version of the library that wrote the file.
    const bool regex = fields.object("pattern").has("Regex");
    if (regex && content.find('$') != std::string::npos) fields.refuse("$ in the content of a Replace");
    steps_.emplace_back(Replace{fields.pattern("pattern"), content});
  } else if (kForms.contains(type)) {
    fields.only({"type"});
    steps_.emplace_back(kForms.at(type));
  } else {
    fields.refuse("the normalizer " + type);
  }
}

std::string Normalizer::apply(std::string_view text) const {
  std::string now(text);
  for (const Step& step : steps_) {
    if (const auto* prepend = std::get_if<Prepend>(&step)) {
      if (!now.empty()) now.insert(0, prepend->text);
    } else if (const auto* replace = std::get_if<Replace>(&step)) {
      now = replace_matches(now, replace->pattern, replace->content);
    } else {
      now = normalize_unicode(now, std::get<UnicodeForm>(step));
    }
  }
  return now;
}

}  // namespace spillway
