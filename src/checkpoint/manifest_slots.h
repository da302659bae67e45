// A manifest on disk: a chain of slots, each with a header that names the next one and a checksum of its own, so that
// no byte is looked at before it verifies. docs/formats.md has the fields.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "store/slot_file.h"

namespace spillway {

constexpr std::int64_t manifest_slot_header_bytes = 64;

// Slots that a manifest of so many bytes takes.
std::int64_t manifest_slot_count(std::int64_t manifest_bytes, std::int64_t slot_bytes);

struct WrittenManifest {
  std::vector<SlotId> slots;  // in the order of the chain
  std::int64_t bytes = 0;
  std::uint64_t checksum = 0;  // of these bytes
};

// Writes a manifest to slots of the reserve. `written` is called after each. Throws DeviceError.
WrittenManifest write_manifest_slots(const Manifest& manifest, SlotStore& slots,
                                     const std::function<void(int slot)>& written);

// Reads one back, given where it begins; also which slots it lies in. `name` begins the errors, all DeviceError.
struct FoundManifest {
  Manifest manifest;
  std::vector<SlotId> slots;
};
FoundManifest read_manifest_slots(const SlotStore& slots, SlotId first, std::int64_t bytes, std::uint64_t checksum,
                                  std::uint64_t generation, const std::string& name);

}  // namespace spillway
