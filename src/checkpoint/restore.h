// Reads the tensors of a commit, piece by piece, each slot checked against its checksum before a byte of it is handed
// out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "checkpoint/manifest.h"
#include "store/slot_file.h"

namespace spillway {

// Memory: one slot. One thread at a time. Several readers may read one store at once, also while a run writes to it.
class PieceReader {
 public:
  // Both outlive it.
  PieceReader(const SlotStore& slots, const Manifest& manifest);

  // Fills `into` with `into.size()` bytes of the piece from `offset_bytes` on. Sequential in the order of
  // Manifest::pieces. Throws DeviceError naming file, tensor and offset when a slot does not verify or cannot be read.
  void read(const ManifestPiece& piece, std::int64_t offset_bytes, std::span<std::byte> into);
};

// Rows of a tensor in a manifest, whatever pieces they lie in: for a layout that cuts tensors differently.
class TensorReader {
 public:
  TensorReader(const SlotStore& slots, const Manifest& manifest);

  // Rows [row_begin, row_end) of the tensor, row-major, into exactly that many bytes. Throws UserError when there is no
  // such tensor or row, DeviceError like PieceReader.
  void read(std::string_view tensor, std::int64_t row_begin, std::int64_t row_end, std::span<std::byte> into);
};

// How many bytes of a commit verify, and what does not.
struct Verification {
  std::int64_t bytes = 0;
  std::vector<std::string> faults;  // each names file, tensor and offset; at most `most_faults`
};
constexpr std::size_t most_faults = 100;

// Reads every slot that the commit names. `progress` is called with the bytes read so far.
Verification verify_commit(const SlotStore& slots, const Manifest& manifest,
                           const std::function<void(std::int64_t bytes)>& progress = {});

}  // namespace spillway
