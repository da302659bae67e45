// JSON lines: one object a line, of which the string `text` is taken. Blank lines are skipped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "formats/file.h"
#include "formats/utf8.h"

namespace spillway {

struct JsonlText {
  std::string text;           // valid UTF-8
  std::int64_t replaced = 0;  // wrong UTF-8 sequences and lone surrogates that became U+FFFD
};

// Pure: the text of one line. Throws UserError, and nothing else, naming `file` and `line`.
JsonlText parse_jsonl_line(std::string line_bytes, std::string_view file, std::int64_t line);

// Streams a file; memory is about five times the longest line, which is limited.
class JsonlReader {
 public:
  static constexpr std::int64_t default_line_limit_bytes = 64 * mib;

  explicit JsonlReader(const std::filesystem::path& path, std::int64_t line_limit_bytes = default_line_limit_bytes);

  // The text of the next line that is not blank; false at the end.
  bool next(std::string& text);
  std::int64_t line() const { return line_; }  // of the last text, from 1
  std::int64_t replaced() const { return repair_.replaced() + replaced_; }
  std::int64_t bytes_read() const { return offset_; }

 private:
  bool next_line(std::string& line);
  // The next block of the file, repaired, so that the limit holds for what a line becomes; false at the end.
  bool fill_buffer();

  File file_;
  std::int64_t line_limit_bytes_;
  std::int64_t offset_ = 0;  // of the file, after what is in buffer_
  std::string block_;
  Utf8Repair repair_;
  std::string buffer_;
  std::size_t buffer_begin_ = 0;
  std::int64_t line_ = 0;
  std::int64_t replaced_ = 0;  // lone surrogates
};

}  // namespace spillway
