#include "checkpoint/manifest_slots.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "store/aligned_buffer.h"
#include "store/byte_fields.h"
#include "store/checksum.h"

namespace spillway {
namespace {

constexpr std::uint64_t slot_magic = 0x3152414d4c505053;  // "SPPLMAR1"
constexpr std::uint32_t no_slot = UINT32_MAX;

struct SlotHeader {
  RunId run;
  std::uint64_t generation = 0;
  std::uint32_t part = 0;
  std::uint32_t parts = 0;
  std::uint32_t next_file = no_slot;
  std::uint32_t next_index = no_slot;
  std::uint64_t payload_bytes = 0;
};

std::int64_t payload_of(std::int64_t slot_bytes) { return slot_bytes - manifest_slot_header_bytes; }

// `block` is whole: header, payload, zeros.
void write_header(const SlotHeader& header, std::span<std::byte> block) {
  FieldWriter fields(block.subspan(checksum_bytes, manifest_slot_header_bytes - checksum_bytes));
  fields.put(slot_magic);
  fields.put_bytes(std::as_bytes(std::span(header.run.bytes)));
  fields.put(header.generation);
  fields.put(header.part);
  fields.put(header.parts);
  fields.put(header.next_file);
  fields.put(header.next_index);
  fields.put(header.payload_bytes);
  FieldWriter(block).put(checksum_of(block.subspan(checksum_bytes)));
}

class ChainWriter {
 public:
  ChainWriter(const Manifest& manifest, SlotStore& slots, std::int64_t bytes, const std::function<void(int)>& written)
      : manifest_(manifest), slots_(slots), written_(written), buffer_(slots.slot_bytes()) {
    result_.bytes = bytes;
    const std::int64_t count = manifest_slot_count(bytes, slots.slot_bytes());
    for (std::int64_t i = 0; i < count; ++i) result_.slots.push_back(slots.allocate_reserved());
  }

  void add(std::span<const std::byte> bytes) {
    sum_.add(bytes);
    while (!bytes.empty()) {
      if (used_ == payload_of(slots_.slot_bytes())) write_slot();
      const auto room = static_cast<std::size_t>(payload_of(slots_.slot_bytes()) - used_);
      const std::size_t now = std::min(room, bytes.size());
      std::memcpy(buffer_.span().data() + manifest_slot_header_bytes + used_, bytes.data(), now);
      used_ += static_cast<std::int64_t>(now);
      bytes = bytes.subspan(now);
    }
  }

  WrittenManifest finish() {
    write_slot();
    SPILLWAY_CHECK(part_ == result_.slots.size(), "{} of {} slots", part_, result_.slots.size());
    result_.checksum = sum_.value();
    return std::move(result_);
  }

 private:
  void write_slot() {
    const std::int64_t whole = round_up(manifest_slot_header_bytes + used_, slot_file_block_bytes);
    const std::span<std::byte> block = buffer_.span().first(static_cast<std::size_t>(whole));
    std::fill(block.begin() + manifest_slot_header_bytes + used_, block.end(), std::byte{0});
    SlotHeader header{manifest_.run,
                      manifest_.generation,
                      static_cast<std::uint32_t>(part_),
                      static_cast<std::uint32_t>(result_.slots.size()),
                      no_slot,
                      no_slot,
                      static_cast<std::uint64_t>(used_)};
    if (part_ + 1 < result_.slots.size()) {
      const auto [file, index] = slots_.place_of(result_.slots[part_ + 1]);
      header.next_file = static_cast<std::uint32_t>(file);
      header.next_index = static_cast<std::uint32_t>(index);
    }
    write_header(header, block);
    slots_.write_slot(result_.slots[part_], block);
    used_ = 0;
    if (written_) written_(static_cast<int>(part_));
    ++part_;
  }

  const Manifest& manifest_;
  SlotStore& slots_;
  const std::function<void(int)>& written_;
  AlignedBuffer buffer_;
  WrittenManifest result_;
  RunningChecksum sum_;
  std::int64_t used_ = 0;
  std::size_t part_ = 0;
};

// Hands out the payload of a chain of slots, one slot at a time, each once it verifies.
class ChainReader {
 public:
  ChainReader(const SlotStore& slots, SlotId first, std::int64_t bytes, std::uint64_t generation,
              const std::string& name)
      : slots_(slots),
        next_(first),
        left_bytes_(bytes),
        generation_(generation),
        name_(name),
        buffer_(slots.slot_bytes()) {
    parts_ = static_cast<std::uint32_t>(manifest_slot_count(bytes, slots.slot_bytes()));
  }

  void read(std::span<std::byte> into) {
    while (!into.empty()) {
      if (payload_.empty()) read_slot();
      const std::size_t now = std::min(payload_.size(), into.size());
      std::memcpy(into.data(), payload_.data(), now);
      sum_.add(payload_.first(now));
      payload_ = payload_.subspan(now);
      into = into.subspan(now);
    }
  }

  std::uint64_t checksum() const { return sum_.value(); }
  std::vector<SlotId> take_slots() { return std::move(found_); }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    const auto [file, index] = slots_.place_of(found_.back());
    throw DeviceError("{}: '{}' at offset {}: {}", name_, slots_.path(file).string(),
                      slots_.location(found_.back()).offset_bytes, what);
  }

  void read_slot() {
    if (next_ == SlotId::none || found_.size() >= parts_) {
      throw DeviceError("{}: part {} of {} lies beyond the end of its file: the file was cut short", name_,
                        found_.size(), parts_);
    }
    found_.push_back(next_);
    const std::int64_t expected = std::min(left_bytes_, payload_of(slots_.slot_bytes()));
    const std::int64_t whole = round_up(manifest_slot_header_bytes + expected, slot_file_block_bytes);
    const std::span<std::byte> block = buffer_.span().first(static_cast<std::size_t>(whole));
    slots_.read_slot(next_, block);
    FieldReader fields(block);
    if (fields.get<std::uint64_t>() != checksum_of(block.subspan(checksum_bytes))) {
      fail("the manifest does not verify: the disk changed it, or it was never written");
    }
    SlotHeader header;
    const auto magic = fields.get<std::uint64_t>();
    fields.get_bytes(std::as_writable_bytes(std::span(header.run.bytes)));
    header.generation = fields.get<std::uint64_t>();
    header.part = fields.get<std::uint32_t>();
    header.parts = fields.get<std::uint32_t>();
    header.next_file = fields.get<std::uint32_t>();
    header.next_index = fields.get<std::uint32_t>();
    header.payload_bytes = fields.get<std::uint64_t>();
    if (magic != slot_magic || header.run != slots_.run() || header.generation != generation_ ||
        header.part + 1 != found_.size() || header.parts != parts_ ||
        header.payload_bytes != static_cast<std::uint64_t>(expected)) {
      fail("this is not the part of the manifest that belongs here: the slot was used again");
    }
    payload_ = block.subspan(manifest_slot_header_bytes, static_cast<std::size_t>(expected));
    left_bytes_ -= expected;
    next_ =
        header.next_file > INT32_MAX || header.next_index > INT32_MAX
            ? SlotId::none
            : slots_.slot_at(static_cast<std::int32_t>(header.next_file), static_cast<std::int32_t>(header.next_index));
  }

  const SlotStore& slots_;
  SlotId next_;
  std::int64_t left_bytes_;
  std::uint64_t generation_;
  const std::string& name_;
  AlignedBuffer buffer_;
  std::uint32_t parts_ = 0;
  std::span<const std::byte> payload_;
  std::vector<SlotId> found_;
  RunningChecksum sum_;
};

void check_slots(const SlotStore& slots, const Manifest& manifest, const std::string& name) {
  if (manifest.run != slots.run() || manifest.files != slots.file_count() ||
      manifest.slot_bytes != slots.slot_bytes()) {
    throw DeviceError("{}: it is of run {}, of {} files with slots of {}: the files were mixed up", name,
                      manifest.run.text(), manifest.files, format_bytes(manifest.slot_bytes));
  }
  for (const ManifestExtent& extent : manifest.extents) {
    if (slots.slot_at(extent.file, extent.index) != SlotId::none) continue;
    throw DeviceError("{}: it names slot {} of '{}', which ends before: the file was cut short", name, extent.index,
                      slots.path(extent.file).string());
  }
}

}  // namespace

std::int64_t manifest_slot_count(std::int64_t manifest_bytes, std::int64_t slot_bytes) {
  return divide_up(manifest_bytes, payload_of(slot_bytes));
}

WrittenManifest write_manifest_slots(const Manifest& manifest, SlotStore& slots,
                                     const std::function<void(int slot)>& written) {
  const std::int64_t bytes = write_manifest(manifest, [](std::span<const std::byte>) {});
  ChainWriter writer(manifest, slots, bytes, written);
  write_manifest(manifest, [&](std::span<const std::byte> portion) { writer.add(portion); });
  return writer.finish();
}

FoundManifest read_manifest_slots(const SlotStore& slots, SlotId first, std::int64_t bytes, std::uint64_t checksum,
                                  std::uint64_t generation, const std::string& name) {
  ChainReader reader(slots, first, bytes, generation, name);
  FoundManifest found;
  found.manifest = read_manifest([&](std::span<std::byte> into) { reader.read(into); }, bytes, name);
  if (reader.checksum() != checksum || found.manifest.generation != generation) {
    throw DeviceError("{}: its parts verify but are not those of this commit: the files were mixed up", name);
  }
  check_slots(slots, found.manifest, name);
  found.slots = reader.take_slots();
  return found;
}

}  // namespace spillway
