// Reads the tensors of a commit, each slot checked against its checksum before a byte of it is handed out.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.h"
#include "store/aligned_buffer.h"
#include "store/slot_file.h"

namespace spillway {

// Memory: the slots it holds, which are as many as are read in turn. For one thread at a time; several readers may read
// one store at once, also while a run writes to it.
class PieceReader {
 public:
  // Both outlive it.
  PieceReader(const SlotStore& slots, const Manifest& manifest, std::size_t held_slots = 1);

  // Fills `into` with bytes of the piece from `offset_bytes` on. Sequential in the order of Manifest::pieces. Throws
  // DeviceError naming tensor, file and offset when a slot does not verify or cannot be read.
  void read(const ManifestPiece& piece, std::int64_t offset_bytes, std::span<std::byte> into);

 private:
  struct Buffered {
    AlignedBuffer buffer;
    std::int64_t extent = -1;  // which the buffer holds
  };

  std::span<const std::byte> extent(std::int64_t number, const ManifestPiece& piece);

  const SlotStore& slots_;
  const Manifest& manifest_;
  std::size_t held_slots_;
  std::vector<Buffered> buffered_;  // the latest last
};

// Rows of a tensor of a commit, whatever pieces they lie in: for layouts that cut tensors differently.
class TensorReader {
 public:
  TensorReader(const SlotStore& slots, const Manifest& manifest, std::size_t held_slots = 1);

  // The tensor, or null.
  const ManifestTensor* find(std::string_view tensor) const;

  // Rows [row_begin, row_begin + what `into` holds), row-major; whole rows. Throws UserError when there is no such
  // tensor or row, DeviceError like PieceReader.
  void read(std::string_view tensor, std::int64_t row_begin, std::span<std::byte> into);

 private:
  const Manifest& manifest_;
  PieceReader reader_;
  std::map<std::string, std::int32_t, std::less<>> tensors_;
  std::vector<std::vector<std::int32_t>> pieces_;  // by tensor, in order of rows
};

// How many bytes of a commit were read, and what of it does not verify.
struct Verification {
  std::int64_t bytes = 0;
  std::vector<std::string> faults;  // each names file, tensor and offset; at most `most_faults`
};
constexpr std::size_t most_faults = 100;

// Reads every slot that the commit names. `progress` is called with the bytes read so far.
Verification verify_commit(const SlotStore& slots, const Manifest& manifest,
                           const std::function<void(std::int64_t bytes)>& progress = {});

}  // namespace spillway
