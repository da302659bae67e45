#include "formats/jsonl.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "base/error.h"
#include "formats/shown.h"
#include "formats/utf8.h"

namespace spillway {
namespace {

constexpr std::size_t block_bytes = static_cast<std::size_t>(256 * kib);

// Keeps the string at key `text` of the outermost object and nothing else.
class TextReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  TextReader(std::string_view file, std::int64_t line) : file_(file), line_(line) {}

  std::string take() {
    if (!text_) throw UserError("{}, line {}: the object has no string 'text'", file_, line_);
    return std::move(*text_);
  }

  bool start_object(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t) override {
    if (depth_ == 0) refuse_kind();
    return enter();
  }
  bool end_array() override { return leave(); }
  bool key(std::string& name) override {
    if (depth_ == 1) at_text_ = name == "text";
    return true;
  }
  bool string(std::string& value) override {
    if (depth_ == 1 && at_text_) {
      text_ = std::move(value);
      return true;
    }
    return scalar();
  }
  bool null() override { return scalar(); }
  bool boolean(bool) override { return scalar(); }
  bool number_integer(number_integer_t) override { return scalar(); }
  bool number_unsigned(number_unsigned_t) override { return scalar(); }
  bool number_float(number_float_t, const string_t&) override { return scalar(); }
  bool binary(binary_t&) override { return scalar(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    throw UserError("{}, line {}: not JSON from its byte {} on", file_, line_, position);
  }

 private:
  bool enter() {
    if (depth_ == 1 && at_text_) refuse_text();
    ++depth_;
    return true;
  }
  bool leave() {
    --depth_;
    return true;
  }
  bool scalar() {
    if (depth_ == 0) refuse_kind();
    if (depth_ == 1 && at_text_) refuse_text();
    return true;
  }
  [[noreturn]] void refuse_kind() const {
    throw UserError("{}, line {}: each line must be an object with a string 'text'", file_, line_);
  }
  [[noreturn]] void refuse_text() const { throw UserError("{}, line {}: 'text' is not a string", file_, line_); }

  std::string_view file_;
  std::int64_t line_;
  std::int64_t depth_ = 0;
  bool at_text_ = false;
  std::optional<std::string> text_;
};

// The 16 bits of an escape \uXXXX at `at`.
std::optional<unsigned> escape_at(std::string_view line, std::size_t at) {
  if (line.substr(at, 2) != "\\u" || line.size() < at + 6) return std::nullopt;
  unsigned value = 0;
  for (const char c : line.substr(at + 2, 4)) {
    if (std::isxdigit(static_cast<unsigned char>(c)) == 0) return std::nullopt;
    value = value * 16 +
            static_cast<unsigned>(std::isdigit(static_cast<unsigned char>(c)) != 0 ? c - '0' : (c | 32) - 'a' + 10);
  }
  return value;
}

// Half of a surrogate pair stands for no character, yet other tools write it; it becomes \ufffd.
std::int64_t replace_lone_surrogates(std::string& line) {
  std::int64_t replaced = 0;
  for (std::size_t at = line.find('\\'); at != std::string::npos; at = line.find('\\', at)) {
    const std::optional<unsigned> value = escape_at(line, at);
    const bool high = value && *value >= 0xD800 && *value < 0xDC00;
    const bool low = value && *value >= 0xDC00 && *value < 0xE000;
    const std::optional<unsigned> next = high ? escape_at(line, at + 6) : std::nullopt;
    if (next && *next >= 0xDC00 && *next < 0xE000) {
      at += 12;
    } else if (high || low) {
      line.replace(at, 6, "\\ufffd");
      ++replaced;
      at += 6;
    } else {
      at += 2;
    }
    if (at >= line.size()) break;
  }
  return replaced;
}

std::int64_t repair_utf8(std::string& line) {
  Utf8Repair repair;
  std::string valid;
  repair.feed(line, valid);
  repair.end(valid);
  line = std::move(valid);
  return repair.replaced();
}

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r\n") == std::string_view::npos; }

}  // namespace

JsonlText parse_jsonl_line(std::string line_bytes, std::string_view file, std::int64_t line) {
  JsonlText result;
  if (!is_utf8(line_bytes)) result.replaced += repair_utf8(line_bytes);
  result.replaced += replace_lone_surrogates(line_bytes);
  TextReader reader(file, line);
  nlohmann::json::sax_parse(line_bytes, &reader);
  result.text = reader.take();
  return result;
}

JsonlReader::JsonlReader(const std::filesystem::path& path, std::int64_t line_limit_bytes)
    : file_(File::open_to_read(path)), line_limit_bytes_(line_limit_bytes) {}

bool JsonlReader::next(std::string& text) {
  std::string line;
  do {
    if (!next_line(line)) return false;
    ++line_;
  } while (is_blank(line));
  JsonlText parsed = parse_jsonl_line(std::move(line), file_.path().string(), line_);
  replaced_ += parsed.replaced;
  text = std::move(parsed.text);
  return true;
}

bool JsonlReader::next_line(std::string& line) {
  line.clear();
  while (true) {
    const std::string_view rest = std::string_view(buffer_).substr(buffer_begin_);
    const std::size_t end = rest.find('\n');
    line += rest.substr(0, end);
    if (static_cast<std::int64_t>(line.size()) > line_limit_bytes_) {
      throw UserError("{}, line {}: longer than the {} that a line may have; cut the document in several{}",
                      file_.path().string(), line_ + 1, format_bytes(line_limit_bytes_),
                      line_limit_bytes_ < default_line_limit_bytes ? " or give more memory" : "");
    }
    if (end != std::string_view::npos) {
      buffer_begin_ += end + 1;
      return true;
    }
    if (!fill_buffer()) return !line.empty();
  }
}

bool JsonlReader::fill_buffer() {
  block_.resize(block_bytes);
  const std::int64_t bytes = file_.read_some(offset_, std::as_writable_bytes(std::span(block_)));
  file_.drop_cache(offset_, bytes);
  offset_ += bytes;
  buffer_.clear();
  buffer_begin_ = 0;
  repair_.feed(std::string_view(block_).substr(0, static_cast<std::size_t>(bytes)), buffer_);
  if (bytes == 0) repair_.end(buffer_);
  return !buffer_.empty() || bytes > 0;
}

}  // namespace spillway
