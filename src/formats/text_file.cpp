#include "formats/text_file.h"

namespace spillway {

TextFileReader::TextFileReader(const std::filesystem::path& path, std::int64_t block_bytes)
    : file_(File::open_to_read(path)), block_(static_cast<std::size_t>(block_bytes), '\0') {}

bool TextFileReader::append_next(std::string& text) {
  if (ended_) return false;
  const std::int64_t bytes = file_.read_some(offset_, std::as_writable_bytes(std::span(block_)));
  file_.drop_cache(offset_, bytes);
  offset_ += bytes;
  repair_.feed(std::string_view(block_).substr(0, static_cast<std::size_t>(bytes)), text);
  if (bytes < static_cast<std::int64_t>(block_.size())) {
    ended_ = true;
    repair_.end(text);
  }
  return true;
}

}  // namespace spillway
