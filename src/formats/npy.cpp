#include "formats/npy.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "formats/shown.h"

namespace spillway {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::size_t longest_prefix_bytes = 12;  // magic, two bytes of version, four of length

// The header is a literal of a Python dictionary with the keys descr, fortran_order and shape.
class HeaderText {
 public:
  HeaderText(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  void parse() {
    expect('{');
    while (!accept('}')) {
      parse_item(quoted());
      if (!accept(',') && !peek('}')) refuse();
    }
    skip_space();
    if (at_ != text_.size() || !descr || !order_seen_ || !shape_seen_) refuse();
  }

  std::optional<std::string> descr;
  std::vector<std::int64_t> shape;

 private:
  void parse_item(std::string_view key) {
    expect(':');
    if (key == "descr" && !descr) {
      if (peek('[')) throw UserError("{}: the array has fields; save a plain uint16 or uint32 array", file_);
      descr = std::string(quoted());
    } else if (key == "fortran_order" && !order_seen_) {
      order_seen_ = true;  // the same thing for one dimension
      if (!accept_word("True") && !accept_word("False")) refuse();
    } else if (key == "shape" && !shape_seen_) {
      shape_seen_ = true;
      parse_shape();
    } else {
      refuse();
    }
  }
  void parse_shape() {
    expect('(');
    while (!accept(')')) {
      shape.push_back(number());
      if (!accept(',') && !peek(')')) refuse();
    }
  }
  std::string_view quoted() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') refuse();
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) refuse();
    const std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return inside;
  }
  std::int64_t number() {
    skip_space();
    std::int64_t value = 0;
    const char* begin = text_.data() + at_;
    const auto [end, code] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (code != std::errc() || value < 0) refuse();
    at_ += static_cast<std::size_t>(end - begin);
    accept_word("L");  // Python 2 wrote 10L
    return value;
  }
  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool peek(char c) {
    skip_space();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool accept(char c) {
    const bool found = peek(c);
    if (found) ++at_;
    return found;
  }
  bool accept_word(std::string_view word) {
    skip_space();
    const bool found = text_.substr(at_).starts_with(word);
    if (found) at_ += word.size();
    return found;
  }
  void expect(char c) {
    if (!accept(c)) refuse();
  }
  [[noreturn]] void refuse() const { throw UserError("{}: the .npy header is damaged at its byte {}", file_, at_); }

  std::string_view text_;
  std::string_view file_;
  std::size_t at_ = 0;
  bool order_seen_ = false;
  bool shape_seen_ = false;
};

struct Extent {
  std::size_t begin;
  std::size_t bytes;
};

// Where the header's text lies.
Extent find_text(std::span<const std::byte> begin, std::string_view file) {
  if (begin.size() < 10 || std::memcmp(begin.data(), magic.data(), magic.size()) != 0) {
    throw UserError("{}: not a .npy file; save the token ids with numpy.save", file);
  }
  const auto version = std::to_integer<int>(begin[6]);
  if (version < 1 || version > 3) throw UserError("{}: .npy format version {} is not known", file, version);
  std::array<std::uint8_t, 4> length{};
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  if (begin.size() < 8 + length_bytes) throw UserError("{}: the .npy file is truncated in its header", file);
  std::memcpy(length.data(), begin.data() + 8, length_bytes);
  const std::uint32_t bytes =
      length[0] | (std::uint32_t{length[1]} << 8) | (std::uint32_t{length[2]} << 16) | (std::uint32_t{length[3]} << 24);
  if (bytes > npy_header_limit_bytes) {
    throw UserError("{}: the .npy header claims {} bytes, more than the {} that one may have here", file, bytes,
                    npy_header_limit_bytes);
  }
  if (bytes > begin.size() - 8 - length_bytes) {
    throw UserError("{}: the .npy file is truncated in its header", file);
  }
  return {8 + length_bytes, bytes};
}

DType dtype_of(std::string_view descr, std::string_view file) {
  if (descr == "<u2") return DType::u16;
  if (descr == "<u4") return DType::u32;
  throw UserError("{}: the array has dtype '{}', but token ids must be little-endian uint16 or uint32 ('<u2', '<u4')",
                  file, shown(descr));
}

}  // namespace

NpyHeader parse_npy_header(std::span<const std::byte> begin, std::int64_t file_bytes, std::string_view file) {
  const Extent extent = find_text(begin, file);
  HeaderText text({reinterpret_cast<const char*>(begin.data()) + extent.begin, extent.bytes}, file);
  text.parse();
  NpyHeader header;
  header.dtype = dtype_of(*text.descr, file);
  if (text.shape.size() != 1) {
    throw UserError("{}: the array has {} dimensions, but token ids must be in one", file, text.shape.size());
  }
  header.count = text.shape[0];
  header.data_offset = static_cast<std::int64_t>(extent.begin + extent.bytes);
  const std::int64_t data_bytes = file_bytes - header.data_offset;
  const std::int64_t element_bytes = size_of(header.dtype);
  if (data_bytes % element_bytes != 0 || data_bytes / element_bytes != header.count) {
    throw UserError(
        "{}: the header says {} token ids of {} bytes, but {} bytes follow it; the file is truncated or "
        "damaged",
        file, header.count, element_bytes, data_bytes);
  }
  return header;
}

void read_ids(const File& file, std::int64_t data_offset, DType dtype, std::int64_t begin,
              std::span<std::uint32_t> into) {
  if (dtype == DType::u32) {
    file.read(data_offset + begin * 4, std::as_writable_bytes(into));
    return;
  }
  std::array<std::uint16_t, 4096> narrow;
  while (!into.empty()) {
    const std::size_t part = std::min(into.size(), narrow.size());
    file.read(data_offset + begin * 2, std::as_writable_bytes(std::span(narrow).first(part)));
    std::copy_n(narrow.begin(), part, into.begin());
    into = into.subspan(part);
    begin += static_cast<std::int64_t>(part);
  }
}

NpyReader::NpyReader(const std::filesystem::path& path) : file_(File::open_to_read(path)) {
  std::vector<std::byte> begin(static_cast<std::size_t>(npy_header_limit_bytes) + longest_prefix_bytes);
  begin.resize(static_cast<std::size_t>(file_.read_some(0, begin)));
  header_ = parse_npy_header(begin, file_.size(), path.string());
}

void NpyReader::read(std::int64_t begin, std::span<std::uint32_t> into) const {
  SPILLWAY_CHECK(begin >= 0 && begin <= count() && static_cast<std::int64_t>(into.size()) <= count() - begin,
                 "{} ids from {} of {}", into.size(), begin, count());
  read_ids(file_, header_.data_offset, header_.dtype, begin, into);
}

}  // namespace spillway
