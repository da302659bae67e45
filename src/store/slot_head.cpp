#include "store/slot_head.h"

#include <algorithm>

#include "base/error.h"
#include "store/byte_fields.h"
#include "store/checksum.h"

namespace spillway {
namespace {

constexpr std::uint64_t head_magic = 0x31544f4c534c5053;  // "SPLSLOT1"

}  // namespace

void write_head(const SlotHead& head, std::span<std::byte> block) {
  std::fill(block.begin(), block.end(), std::byte{0});
  FieldWriter fields(block);
  fields.put(head_magic);
  fields.put(slot_file_version);
  fields.put(static_cast<std::uint32_t>(head.index));
  fields.put(static_cast<std::uint32_t>(head.count));
  fields.put(std::uint32_t{0});
  fields.put_bytes(std::as_bytes(std::span(head.run.bytes)));
  fields.put(static_cast<std::uint64_t>(head.slot_bytes));
  FieldWriter end(block.last(checksum_bytes));
  end.put(checksum_of(block.first(block.size() - checksum_bytes)));
}

SlotHead read_head(std::span<const std::byte> block, const std::string& name) {
  FieldReader fields(block);
  const auto magic = fields.get<std::uint64_t>();
  const auto version = fields.get<std::uint32_t>();
  SlotHead head;
  head.index = static_cast<std::int32_t>(fields.get<std::uint32_t>());
  head.count = static_cast<std::int32_t>(fields.get<std::uint32_t>());
  fields.get<std::uint32_t>();
  fields.get_bytes(std::as_writable_bytes(std::span(head.run.bytes)));
  head.slot_bytes = static_cast<std::int64_t>(fields.get<std::uint64_t>());
  if (FieldReader(block.last(checksum_bytes)).get<std::uint64_t>() !=
      checksum_of(block.first(block.size() - checksum_bytes))) {
    throw DeviceError(
        "{}: the head of the file, at offset 0, does not verify: restore the file from a copy, or remove it", name);
  }
  if (magic != head_magic || version != slot_file_version) {
    throw DeviceError("{}: is not a slot file of version {}: open it with the version of Spillway that wrote it", name,
                      slot_file_version);
  }
  if (head.count < 1 || head.index < 0 || head.index >= head.count || head.slot_bytes < 4096 ||
      head.slot_bytes % 4096 != 0) {
    throw DeviceError("{}: its head says file {} of {} with slots of {} bytes: remove the file", name, head.index,
                      head.count, head.slot_bytes);
  }
  return head;
}

}  // namespace spillway
