#include "formats/safetensors.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace spillway {
namespace {

// Dirty pages of a file being written stay below this.
constexpr std::int64_t sync_period_bytes = 32 * 1024 * 1024;

// Tensors one after the other, those of larger elements first so that each is aligned to its element.
SafetensorsHeader lay_out(std::span<const SafetensorsTensor> tensors,
                          const std::map<std::string, std::string>& metadata) {
  SafetensorsHeader header{.entries = {}, .metadata = metadata};
  for (const SafetensorsTensor& tensor : tensors) {
    header.entries.push_back({.name = tensor.name, .stored_dtype = tensor.stored_dtype, .shape = tensor.shape});
  }
  std::ranges::stable_sort(header.entries, std::ranges::greater{},
                           [](const SafetensorsEntry& e) { return stored_element_bytes(e.stored_dtype); });
  std::int64_t offset = 0;
  for (SafetensorsEntry& entry : header.entries) {
    entry.offset = offset;
    entry.bytes = stored_element_bytes(entry.stored_dtype);
    for (const std::int64_t size : entry.shape) entry.bytes *= size;
    offset += entry.bytes;
  }
  return header;
}

// Length and JSON, padded so that the data begins at a multiple of 8.
std::string header_text(const SafetensorsHeader& header) {
  auto json = nlohmann::ordered_json::object();
  if (!header.metadata.empty()) json["__metadata__"] = header.metadata;
  for (const SafetensorsEntry& entry : header.entries) {
    json[entry.name] = {{"dtype", entry.stored_dtype},
                        {"shape", entry.shape},
                        {"data_offsets", {entry.offset, entry.offset + entry.bytes}}};
  }
  std::string text = json.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const auto length = static_cast<std::uint64_t>(text.size());
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

}  // namespace

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path) : file_(File::open_to_read(path)) {
  const std::int64_t file_bytes = file_.size();
  std::array<std::byte, 8> length{};
  const auto length_bytes = static_cast<std::size_t>(file_.read_some(0, length));
  const std::int64_t header_bytes =
      safetensors_header_bytes(std::span(length).first(length_bytes), file_bytes, path.string());
  std::string json(static_cast<std::size_t>(header_bytes), '\0');
  data_offset_ = 8 + header_bytes;
  file_.read(8, std::as_writable_bytes(std::span(json)));
  header_ = parse_safetensors_header(json, file_bytes - data_offset_, path.string());
  for (std::size_t i = 0; i < header_.entries.size(); ++i) by_name_.emplace(header_.entries[i].name, i);
}

const SafetensorsEntry* SafetensorsReader::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &header_.entries[found->second];
}

void SafetensorsReader::read(const SafetensorsEntry& entry, std::int64_t byte_begin, std::span<std::byte> into) const {
  const auto bytes = static_cast<std::int64_t>(into.size());
  SPILLWAY_CHECK(byte_begin >= 0 && byte_begin <= entry.bytes && bytes <= entry.bytes - byte_begin,
                 "{} bytes from {} of the {} of tensor '{}'", bytes, byte_begin, entry.bytes, entry.name);
  if (bytes == 0) return;
  const std::int64_t offset = data_offset_ + entry.offset + byte_begin;
  file_.read(offset, into);
  file_.drop_cache(offset, bytes);
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::span<const SafetensorsTensor> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : temporary_(path), header_(lay_out(tensors, metadata)) {
  for (std::size_t i = 0; i < header_.entries.size(); ++i) {
    const bool added = by_name_.emplace(header_.entries[i].name, i).second;
    SPILLWAY_CHECK(added, "tensor '{}' twice", header_.entries[i].name);
  }
  const std::string text = header_text(header_);
  data_offset_ = static_cast<std::int64_t>(text.size());
  SPILLWAY_CHECK(data_offset_ <= safetensors_header_limit_bytes, "a header of {} bytes", data_offset_);
  temporary_.file().write(0, std::as_bytes(std::span(text)));
}

void SafetensorsWriter::write(std::string_view name, std::int64_t byte_begin, std::span<const std::byte> from) {
  const auto found = by_name_.find(name);
  SPILLWAY_CHECK(found != by_name_.end(), "no tensor '{}' in {}", name, temporary_.final_path().string());
  const SafetensorsEntry& entry = header_.entries[found->second];
  const auto bytes = static_cast<std::int64_t>(from.size());
  SPILLWAY_CHECK(byte_begin >= 0 && byte_begin <= entry.bytes && bytes <= entry.bytes - byte_begin,
                 "{} bytes from {} of the {} of tensor '{}'", bytes, byte_begin, entry.bytes, name);
  if (bytes == 0) return;
  mark_written(entry.offset + byte_begin, entry.offset + byte_begin + bytes);
  // A large span goes in parts, for the sake of the bound on dirty pages.
  for (std::int64_t done = 0; done < bytes;) {
    const std::int64_t part = std::min(bytes - done, sync_period_bytes);
    temporary_.file().write(data_offset_ + entry.offset + byte_begin + done,
                            from.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(part)));
    done += part;
    unsynced_bytes_ += part;
    if (unsynced_bytes_ < sync_period_bytes) continue;
    temporary_.file().sync();
    temporary_.file().drop_cache(0, 0);
    unsynced_bytes_ = 0;
  }
}

void SafetensorsWriter::mark_written(std::int64_t begin, std::int64_t end) {
  auto next = written_.upper_bound(begin);
  SPILLWAY_CHECK(next == written_.end() || next->first >= end, "bytes {} to {} written twice", begin, end);
  if (next != written_.begin()) {
    const auto previous = std::prev(next);
    SPILLWAY_CHECK(previous->second <= begin, "bytes {} to {} written twice", begin, end);
    if (previous->second == begin) begin = previous->first;
  }
  if (next != written_.end() && next->first == end) {
    end = next->second;
    written_.erase(next);
  }
  written_[begin] = end;
}

void SafetensorsWriter::seal() {
  for (const SafetensorsEntry& entry : header_.entries) {
    if (entry.bytes == 0) continue;
    const auto next = written_.upper_bound(entry.offset);
    SPILLWAY_CHECK(next != written_.begin() && std::prev(next)->second >= entry.offset + entry.bytes,
                   "tensor '{}' of {} was not written whole", entry.name, temporary_.final_path().string());
  }
  temporary_.file().sync();
  temporary_.file().drop_cache(0, 0);
}

void SafetensorsWriter::finish() {
  seal();
  temporary_.keep();
}

}  // namespace spillway
