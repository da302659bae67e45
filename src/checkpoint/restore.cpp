#include "checkpoint/restore.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "store/checksum.h"

namespace spillway {
namespace {

std::int64_t offset_of(const SlotStore& slots, const ManifestExtent& extent) {
  return slots.location(slots.slot_at(extent.file, extent.index)).offset_bytes;
}

// Reads the extent into the buffer and checks it. `what` is what it holds, for errors.
std::span<const std::byte> read_extent(const SlotStore& slots, const ManifestExtent& extent,
                                       std::span<std::byte> buffer, const std::string& what) {
  const auto bytes = static_cast<std::size_t>(extent.bytes);
  const auto whole = static_cast<std::size_t>(round_up(extent.bytes, slot_file_block_bytes));
  try {
    slots.read_slot(slots.slot_at(extent.file, extent.index), buffer.first(whole));
  } catch (const DeviceError& error) {
    throw DeviceError("{}: {}", what, error.what());
  }
  const std::uint64_t found = checksum_of(buffer.first(bytes));
  if (found == extent.checksum) return buffer.first(bytes);
  throw DeviceError(
      "{}: '{}' at offset {}: {} bytes do not verify (checksum {:016x}, committed {:016x}): resume from an older "
      "commit "
      "or an export",
      what, slots.path(extent.file).string(), offset_of(slots, extent), bytes, found, extent.checksum);
}

// The pieces with bytes in a part of a group, in words.
std::string names_in(const Manifest& manifest, std::int32_t group, std::int64_t begin_bytes, std::int64_t end_bytes) {
  auto piece = std::lower_bound(manifest.pieces.begin(), manifest.pieces.end(), group,
                                [](const ManifestPiece& p, std::int32_t g) { return p.group < g; });
  std::string first;
  std::int64_t others = 0;
  for (; piece != manifest.pieces.end() && piece->group == group; ++piece) {
    if (piece->offset_bytes >= end_bytes || piece->offset_bytes + manifest.bytes_of(*piece) <= begin_bytes) continue;
    if (first.empty()) {
      first = manifest.describe(*piece);
    } else {
      ++others;
    }
  }
  if (first.empty()) return "space between tensors";
  return others == 0 ? first : fmt::format("{} and {} more", first, others);
}

}  // namespace

PieceReader::PieceReader(const SlotStore& slots, const Manifest& manifest, std::size_t held_slots)
    : slots_(slots), manifest_(manifest), held_slots_(held_slots) {
  SPILLWAY_CHECK(held_slots > 0, "a reader of commits that holds no slot");
}

std::span<const std::byte> PieceReader::extent(std::int64_t number, const ManifestPiece& piece) {
  const ManifestExtent& extent = manifest_.extents[static_cast<std::size_t>(number)];
  auto place =
      std::find_if(buffered_.begin(), buffered_.end(), [&](const Buffered& held) { return held.extent == number; });
  if (place == buffered_.end()) {
    if (buffered_.size() < held_slots_) {
      place = buffered_.insert(buffered_.end(), {AlignedBuffer(manifest_.slot_bytes)});
    } else {
      place = buffered_.begin();
    }
    place->extent = -1;
    read_extent(slots_, extent, place->buffer.span(), manifest_.describe(piece));
    place->extent = number;
  }
  std::rotate(place, std::next(place), buffered_.end());
  return buffered_.back().buffer.span().first(static_cast<std::size_t>(extent.bytes));
}

void PieceReader::read(const ManifestPiece& piece, std::int64_t offset_bytes, std::span<std::byte> into) {
  SPILLWAY_CHECK(offset_bytes >= 0 && offset_bytes + std::ssize(into) <= manifest_.bytes_of(piece),
                 "{} bytes from {} of {}", into.size(), offset_bytes, manifest_.describe(piece));
  const ManifestGroup& group = manifest_.groups[static_cast<std::size_t>(piece.group)];
  if (group.extents == 0) {
    std::memset(into.data(), 0, into.size());
    return;
  }
  std::int64_t at = piece.offset_bytes + offset_bytes;
  while (!into.empty()) {
    const std::span<const std::byte> bytes = extent(group.first_extent + at / manifest_.slot_bytes, piece);
    const auto from = static_cast<std::size_t>(at % manifest_.slot_bytes);
    const std::size_t now = std::min(into.size(), bytes.size() - from);
    std::memcpy(into.data(), bytes.data() + from, now);
    into = into.subspan(now);
    at += static_cast<std::int64_t>(now);
  }
}

TensorReader::TensorReader(const SlotStore& slots, const Manifest& manifest, std::size_t held_slots)
    : manifest_(manifest), reader_(slots, manifest, held_slots), pieces_(manifest.tensors.size()) {
  for (std::size_t t = 0; t < manifest.tensors.size(); ++t) {
    tensors_.emplace(manifest.tensors[t].name, static_cast<std::int32_t>(t));
  }
  for (std::size_t p = 0; p < manifest.pieces.size(); ++p) {
    pieces_[static_cast<std::size_t>(manifest.pieces[p].tensor)].push_back(static_cast<std::int32_t>(p));
  }
  for (auto& pieces : pieces_) {
    std::sort(pieces.begin(), pieces.end(), [&](std::int32_t a, std::int32_t b) {
      return manifest.pieces[static_cast<std::size_t>(a)].row_begin <
             manifest.pieces[static_cast<std::size_t>(b)].row_begin;
    });
  }
}

const ManifestTensor* TensorReader::find(std::string_view tensor) const {
  const auto found = tensors_.find(tensor);
  return found == tensors_.end() ? nullptr : &manifest_.tensors[static_cast<std::size_t>(found->second)];
}

void TensorReader::read(std::string_view tensor, std::int64_t row_begin, std::span<std::byte> into) {
  const ManifestTensor* const what = find(tensor);
  if (what == nullptr) throw UserError("the commit has no tensor {}: it is of another model", tensor);
  const std::int64_t row_bytes = what->cols * size_of(what->dtype);
  const std::int64_t row_end = row_begin + std::ssize(into) / row_bytes;
  SPILLWAY_CHECK(std::ssize(into) % row_bytes == 0, "{} bytes, rows of {}", into.size(), row_bytes);
  if (row_begin < 0 || row_end > what->rows) {
    throw UserError("the commit's tensor {} has {} rows, not {}: it is of another model", tensor, what->rows, row_end);
  }
  for (const std::int32_t p : pieces_[static_cast<std::size_t>(tensors_.find(tensor)->second)]) {
    const ManifestPiece& piece = manifest_.pieces[static_cast<std::size_t>(p)];
    const std::int64_t begin = std::max(row_begin, piece.row_begin);
    const std::int64_t end = std::min(row_end, piece.row_end);
    if (begin >= end) continue;
    reader_.read(piece, (begin - piece.row_begin) * row_bytes,
                 into.subspan(static_cast<std::size_t>((begin - row_begin) * row_bytes),
                              static_cast<std::size_t>((end - begin) * row_bytes)));
  }
}

Verification verify_commit(const SlotStore& slots, const Manifest& manifest,
                           const std::function<void(std::int64_t bytes)>& progress) {
  Verification result;
  const AlignedBuffer buffer(manifest.slot_bytes);
  for (std::size_t g = 0; g < manifest.groups.size(); ++g) {
    const ManifestGroup& group = manifest.groups[g];
    for (std::int64_t e = 0; e < group.extents; ++e) {
      const ManifestExtent& extent = manifest.extents[static_cast<std::size_t>(group.first_extent + e)];
      const std::int64_t begin = e * manifest.slot_bytes;
      try {
        read_extent(slots, extent, buffer.span(),
                    names_in(manifest, static_cast<std::int32_t>(g), begin, begin + extent.bytes));
      } catch (const DeviceError& error) {
        if (result.faults.size() < most_faults) result.faults.emplace_back(error.what());
      }
      result.bytes += extent.bytes;
      if (progress) progress(result.bytes);
    }
  }
  return result;
}

}  // namespace spillway
