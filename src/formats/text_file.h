// A text file read in blocks, as valid UTF-8.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/bytes.h"
#include "formats/file.h"
#include "formats/utf8.h"

namespace spillway {

class TextFileReader {
 public:
  explicit TextFileReader(const std::filesystem::path& path, std::int64_t block_bytes = 256 * kib);

  // Appends the next block of text, whole characters, to `text`; false when nothing was left.
  bool append_next(std::string& text);
  std::int64_t replaced() const { return repair_.replaced(); }
  std::int64_t bytes_read() const { return offset_; }

 private:
  File file_;
  std::string block_;
  std::int64_t offset_ = 0;
  bool ended_ = false;
  Utf8Repair repair_;
};

}  // namespace spillway
