// A superblock whose checksum is right, so that its fields are what is tried; what is accepted is written and read back
// as it was.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "checkpoint/superblock.h"
#include "store/byte_fields.h"
#include "store/checksum.h"
#include "store/slot_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spillway;
  constexpr std::string_view magic = "SPPLSUP1";
  constexpr std::size_t checksum_bytes = 8;
  std::array<std::byte, slot_file_block_bytes> block{};
  std::memcpy(block.data(), magic.data(), magic.size());
  std::memcpy(block.data() + magic.size(), data, std::min(size, block.size() - magic.size() - checksum_bytes));
  const std::span all(block);
  FieldWriter(all.last(checksum_bytes)).put(checksum_of(all.first(all.size() - checksum_bytes)));
  FieldReader fields(all.subspan(12));
  const auto file = static_cast<std::int32_t>(fields.get<std::uint32_t>());
  const auto files = static_cast<std::int32_t>(fields.get<std::uint32_t>());
  RunId run;
  std::memcpy(run.bytes.data(), block.data() + 24, run.bytes.size());
  const auto superblock = read_superblock(all, run, file, files);
  if (!superblock) return 0;
  std::array<std::byte, slot_file_block_bytes> back{};
  write_superblock(*superblock, run, file, files, back);
  SPILLWAY_CHECK(read_superblock(back, run, file, files) == superblock, "{} commits", superblock->commits.size());
  return 0;
}
