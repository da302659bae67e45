// The head of a slot file whose checksum is right, so that its fields are what is tried; what is accepted is written
// and read back as it was. DeviceError is the only exception allowed.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "store/byte_fields.h"
#include "store/checksum.h"
#include "store/slot_file.h"
#include "store/slot_head.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spillway;
  constexpr std::string_view magic = "SPLSLOT1";
  constexpr std::size_t checksum_bytes = 8;
  std::array<std::byte, slot_file_block_bytes> block{};
  std::memcpy(block.data(), magic.data(), magic.size());
  std::memcpy(block.data() + magic.size(), data, std::min(size, block.size() - magic.size() - checksum_bytes));
  const std::span all(block);
  FieldWriter(all.last(checksum_bytes)).put(checksum_of(all.first(all.size() - checksum_bytes)));
  SlotHead head;
  try {
    head = read_head(all, "fuzz");
  } catch (const DeviceError&) {
    return 0;
  }
  std::array<std::byte, slot_file_block_bytes> back{};
  write_head(head, back);
  SPILLWAY_CHECK(read_head(back, "fuzz") == head, "file {} of {}", head.index, head.count);
  return 0;
}
