#include "checkpoint/manifest.h"

#include <algorithm>
#include <numeric>

#include "base/bytes.h"
#include "base/error.h"
#include "checkpoint/manifest_slots.h"

namespace spillway {
namespace {

// Bundles of state that hold a committed piece, numbered in order; -1 for the others.
std::vector<std::int32_t> committed_groups(const State& state, const Layout& layout) {
  std::vector<std::int32_t> groups(static_cast<std::size_t>(layout.state_bundles), -1);
  for (std::size_t p = 0; p < state.pieces().size(); ++p) {
    if (!state.tensor(state.pieces()[p].tensor).committed) continue;
    groups[index_of(layout.piece_places[p].bundle)] = 0;
  }
  std::int32_t next = 0;
  for (std::int32_t& group : groups) {
    if (group == 0) group = next++;
  }
  return groups;
}

void add_group(Manifest& manifest, std::int64_t bytes, std::span<const SlotId> slots, const SlotStore& store) {
  manifest.groups.push_back({bytes, std::ssize(manifest.extents), std::ssize(slots)});
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const auto [file, index] = store.place_of(slots[i]);
    const std::int64_t from = static_cast<std::int64_t>(i) * manifest.slot_bytes;
    manifest.extents.push_back({file, index, std::min(manifest.slot_bytes, bytes - from), store.checksum(slots[i])});
  }
}

}  // namespace

std::int64_t Manifest::bytes_of(const ManifestPiece& piece) const {
  const ManifestTensor& tensor = tensor_of(piece);
  return (piece.row_end - piece.row_begin) * tensor.cols * size_of(tensor.dtype);
}

std::int64_t Manifest::data_bytes() const {
  std::int64_t bytes = 0;
  for (const ManifestExtent& extent : extents) bytes += extent.bytes;
  return bytes;
}

std::string Manifest::describe(const ManifestPiece& piece) const {
  return fmt::format("{}[{}:{}]", tensor_of(piece).name, piece.row_begin, piece.row_end);
}

Manifest manifest_of(const State& state, const Layout& layout, const SlotSnapshot& snapshot, const SlotStore& slots) {
  SPILLWAY_CHECK(snapshot.bundles() == static_cast<std::size_t>(layout.state_bundles), "{} of {} bundles",
                 snapshot.bundles(), layout.state_bundles);
  Manifest manifest;
  manifest.run = slots.run();
  manifest.files = slots.file_count();
  manifest.slot_bytes = slots.slot_bytes();
  const std::vector<std::int32_t> groups = committed_groups(state, layout);
  for (std::size_t b = 0; b < groups.size(); ++b) {
    if (groups[b] >= 0) add_group(manifest, layout.bundles[b].bytes, snapshot.of(b), slots);
  }
  std::vector<std::int32_t> tensors(state.tensors().size(), -1);
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const Tensor& tensor = state.tensors()[t];
    if (!tensor.committed) continue;
    tensors[t] = static_cast<std::int32_t>(manifest.tensors.size());
    manifest.tensors.push_back({tensor.name, tensor.dtype, tensor.rows, tensor.cols});
  }
  for (std::size_t p = 0; p < state.pieces().size(); ++p) {
    const Piece& piece = state.pieces()[p];
    const Place& place = layout.piece_places[p];
    if (tensors[index_of(piece.tensor)] < 0) continue;
    manifest.pieces.push_back({tensors[index_of(piece.tensor)], groups[index_of(place.bundle)], piece.row_begin,
                               piece.row_end, place.offset_bytes});
  }
  std::sort(manifest.pieces.begin(), manifest.pieces.end(), [](const ManifestPiece& a, const ManifestPiece& b) {
    return std::pair(a.group, a.offset_bytes) < std::pair(b.group, b.offset_bytes);
  });
  return manifest;
}

std::int64_t manifest_bytes_bound(const State& state, const Layout& layout, std::int64_t run_bytes) {
  Manifest all;
  all.facts.run.resize(0);
  std::int64_t bytes = run_bytes;
  for (const Tensor& tensor : state.tensors()) {
    all.tensors.push_back({tensor.name, tensor.dtype, tensor.rows, tensor.cols});
  }
  all.pieces.resize(state.pieces().size());
  all.groups.resize(static_cast<std::size_t>(layout.state_bundles));
  for (std::int32_t b = 0; b < layout.state_bundles; ++b) {
    all.extents.resize(all.extents.size() + static_cast<std::size_t>(layout.pages_of(static_cast<BundleId>(b))));
  }
  bytes += write_manifest(all, [](std::span<const std::byte>) {});
  return manifest_slot_count(bytes, layout.page_bytes) * layout.page_bytes;
}

}  // namespace spillway
