// The first block of a kept slot file: which run it belongs to, and how it is cut in slots. Written once, before the
// file's name is durable. The number of slots follows from the size of the file.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "store/run_id.h"

namespace spillway {

constexpr std::uint32_t slot_file_version = 1;

struct SlotHead {
  RunId run;
  std::int32_t index = 0;  // of `count` files
  std::int32_t count = 1;
  std::int64_t slot_bytes = 0;
  bool operator==(const SlotHead&) const = default;
};

// Fills a block of slot_file_block_bytes.
void write_head(const SlotHead& head, std::span<std::byte> block);
// Throws DeviceError, beginning with `name`, when the block is not a head or does not verify.
SlotHead read_head(std::span<const std::byte> block, const std::string& name);

}  // namespace spillway
