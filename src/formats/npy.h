// NumPy .npy files of token ids: one dimension, uint16 or uint32, little-endian, format versions 1, 2 and 3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/dtype.h"
#include "formats/file.h"

namespace spillway {

struct NpyHeader {
  DType dtype = DType::u32;  // u16 or u32
  std::int64_t count = 0;
  std::int64_t data_offset = 0;  // from the begin of the file
};

constexpr std::int64_t npy_header_limit_bytes = 1 << 16;

// Pure: `begin` holds the first bytes of the file, at least the header or npy_header_limit_bytes + 12 of it. Throws
// UserError, and nothing else, naming `file`.
NpyHeader parse_npy_header(std::span<const std::byte> begin, std::int64_t file_bytes, std::string_view file);

// Ids [begin, begin + into.size()) of a row of u16 or u32 ids that begins at byte `data_offset` of a file.
void read_ids(const File& file, std::int64_t data_offset, DType dtype, std::int64_t begin,
              std::span<std::uint32_t> into);

// Reading is const and may be done by several threads.
class NpyReader {
 public:
  explicit NpyReader(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const NpyHeader& header() const { return header_; }
  std::int64_t count() const { return header_.count; }
  // Elements [begin, begin + into.size()).
  void read(std::int64_t begin, std::span<std::uint32_t> into) const;

 private:
  File file_;
  NpyHeader header_;
};

}  // namespace spillway
