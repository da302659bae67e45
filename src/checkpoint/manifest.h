// What a commit names: for every piece of every committed tensor the slots that hold it, with their checksums, and the
// facts of the run. Names and rectangles, never numbers of a plan or a layout, so that another layout, budget or set of
// directories can restore it. The bytes are described in docs/formats.md.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "plan/layout.h"
#include "state/state.h"
#include "store/run_id.h"
#include "store/slot_file.h"

namespace spillway {

constexpr std::uint32_t manifest_version = 1;

// What a commit says beside its tensors.
struct CommitFacts {
  std::int64_t step = 0;  // optimizer steps done
  std::string run;        // everything else that a run is at this point, as text; the session's
  bool operator==(const CommitFacts&) const = default;
};

struct ManifestTensor {
  std::string name;
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  bool operator==(const ManifestTensor&) const = default;
};

// One slot: where it is, how much of it is meant, and the checksum of that.
struct ManifestExtent {
  std::int32_t file = 0;   // of the run's files
  std::int32_t index = 0;  // of the slot in the file
  std::int64_t bytes = 0;
  std::uint64_t checksum = 0;
  bool operator==(const ManifestExtent&) const = default;
};

// Pieces that lie side by side: the bytes of these extents, one after the other. Without extents it was never written
// and is zero.
struct ManifestGroup {
  std::int64_t bytes = 0;
  std::int64_t first_extent = 0;
  std::int64_t extents = 0;
  bool operator==(const ManifestGroup&) const = default;
};

// Rows of a tensor, in row-major order from offset_bytes of the group.
struct ManifestPiece {
  std::int32_t tensor = 0;
  std::int32_t group = 0;
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  std::int64_t offset_bytes = 0;
  bool operator==(const ManifestPiece&) const = default;
};

struct Manifest {
  RunId run;
  std::uint64_t generation = 0;
  std::int32_t files = 1;       // of the run
  std::int64_t slot_bytes = 0;  // every extent but the last of a group is a whole slot
  CommitFacts facts;
  std::vector<ManifestTensor> tensors;
  std::vector<ManifestExtent> extents;
  std::vector<ManifestGroup> groups;
  std::vector<ManifestPiece> pieces;  // by group, then by offset: the order in which reading is sequential

  const ManifestTensor& tensor_of(const ManifestPiece& piece) const {
    return tensors[static_cast<std::size_t>(piece.tensor)];
  }
  std::int64_t bytes_of(const ManifestPiece& piece) const;
  std::int64_t data_bytes() const;  // in all slots that it names
  // "model.norm.weight[0:64]"
  std::string describe(const ManifestPiece& piece) const;
  bool operator==(const Manifest&) const = default;
};

// The manifest of a snapshot: the committed tensors of `state`, where `layout` puts their pieces. `snapshot` is by
// bundle of the layout's state; a bundle without slots was never written. Run, generation and facts are the caller's.
Manifest manifest_of(const State& state, const Layout& layout, const SlotSnapshot& snapshot, const SlotStore& slots);

// Gives the bytes of a manifest to `sink` in order, in portions of some KiB. Returns how many bytes there are.
std::int64_t write_manifest(const Manifest& manifest, const std::function<void(std::span<const std::byte>)>& sink);

// Reads one. `source` fills its argument in full, or throws; `bytes` are all there are. Memory is bounded by the
// largest valid manifest of that size, whatever the bytes say. Throws DeviceError, beginning with `name`, unless the
// manifest is whole and consistent: every piece inside its tensor and group, no two overlapping, every tensor covered.
Manifest read_manifest(const std::function<void(std::span<std::byte>)>& source, std::int64_t bytes,
                       std::string_view name);

// No manifest of this state and layout takes more bytes of slots, when CommitFacts::run has at most `run_bytes`.
std::int64_t manifest_bytes_bound(const State& state, const Layout& layout, std::int64_t run_bytes);

}  // namespace spillway
