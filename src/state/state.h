// State: the tensors that outlive a step, cut in pieces. One identity for training, evaluation, generation and commits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace spillway {

enum class TensorId : std::int32_t { none = -1 };
enum class PieceId : std::int32_t { none = -1 };
constexpr std::size_t index_of(TensorId id) { return static_cast<std::size_t>(id); }
constexpr std::size_t index_of(PieceId id) { return static_cast<std::size_t>(id); }

// Sums over a tensor (the gradient norm) run over blocks of whole rows of about this many elements, added in order.
constexpr std::int64_t reduction_block_elements = 65536;

// The reduction block of a tensor: whole rows, near reduction_block_elements, such that every block's bytes are a
// multiple of 4 KiB for dtypes of 2 and 4 bytes (so a piece can be read and written with direct I/O). A function of the
// shape alone.
std::int64_t block_rows_of(std::int64_t rows, std::int64_t cols);

struct Tensor {
  std::string name;  // the Hugging Face name; optimizer state has a suffix: ".low", ".exp_avg", ".exp_avg_sq"
  DType dtype = DType::f32;
  std::int64_t rows = 0;  // a vector of n is n x 1
  std::int64_t cols = 1;
  std::int64_t block_rows = 0;  // whole reduction blocks make a piece
  bool trainable = false;
  bool committed = true;  // false: not part of a checkpoint (a key/value cache, a kept gradient)

  std::int64_t elements() const { return rows * cols; }
  std::int64_t bytes() const { return elements() * size_of(dtype); }
};

// Whole rows of a tensor, in whole reduction blocks: the unit of update, version, checksum and owner.
struct Piece {
  TensorId tensor = TensorId::none;
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
};

// Calls `use(row_begin, row_end)` for the reduction blocks of a piece, in order: what loading and saving hold at once.
template <typename Use>
void for_each_block(const Tensor& tensor, const Piece& piece, const Use& use) {
  for (std::int64_t begin = piece.row_begin; begin < piece.row_end; begin += tensor.block_rows)
    use(begin, std::min(begin + tensor.block_rows, piece.row_end));
}

class State {
 public:
  // Cuts the tensor in pieces of whole blocks, each near piece_elements. Piece ids of one tensor are consecutive.
  TensorId add(Tensor tensor, std::int64_t piece_elements);
  // Cuts it in the rows that the pieces of another have.
  TensorId add_cut_like(Tensor tensor, TensorId other);

  const std::vector<Tensor>& tensors() const { return tensors_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  const Tensor& tensor(TensorId id) const { return tensors_[index_of(id)]; }
  const Piece& piece(PieceId id) const { return pieces_[index_of(id)]; }
  PieceId first_piece(TensorId id) const { return static_cast<PieceId>(first_piece_[index_of(id)]); }
  std::int32_t piece_count(TensorId id) const;
  std::int64_t bytes_of(PieceId id) const;
  TensorId find(std::string_view name) const;  // TensorId::none when there is none
  std::string describe(PieceId id) const;      // "model.norm.weight[0:64]"

 private:
  std::vector<Tensor> tensors_;
  std::vector<Piece> pieces_;
  std::vector<std::int32_t> first_piece_;
};

}  // namespace spillway
