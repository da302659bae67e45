#include "state/state.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace spillway {

std::int64_t block_rows_of(std::int64_t rows, std::int64_t cols) {
  // 2048 elements are 4 KiB in the narrowest dtype, two bytes.
  const std::int64_t unit = 2048 / std::gcd(cols, std::int64_t{2048});
  const std::int64_t units = std::max<std::int64_t>(1, reduction_block_elements / (cols * unit));
  return std::min(rows, units * unit);
}

TensorId State::add(Tensor tensor, std::int64_t piece_elements) {
  SPILLWAY_CHECK(tensor.rows > 0 && tensor.cols > 0, "{} is {} x {}", tensor.name, tensor.rows, tensor.cols);
  tensor.block_rows = block_rows_of(tensor.rows, tensor.cols);
  const auto id = static_cast<TensorId>(tensors_.size());
  const std::int64_t block_elements = tensor.block_rows * tensor.cols;
  const std::int64_t blocks = std::max<std::int64_t>(1, piece_elements / block_elements);
  const std::int64_t piece_rows = blocks * tensor.block_rows;
  first_piece_.push_back(static_cast<std::int32_t>(pieces_.size()));
  for (std::int64_t row = 0; row < tensor.rows; row += piece_rows) {
    pieces_.push_back({id, row, std::min(tensor.rows, row + piece_rows)});
  }
  tensors_.push_back(std::move(tensor));
  return id;
}

TensorId State::add_cut_like(Tensor tensor, TensorId other) {
  SPILLWAY_CHECK(tensor.rows == this->tensor(other).rows, "{} has {} rows", tensor.name, tensor.rows);
  tensor.block_rows = this->tensor(other).block_rows;
  const auto id = static_cast<TensorId>(tensors_.size());
  const std::size_t first = index_of(first_piece(other));
  const auto count = static_cast<std::size_t>(piece_count(other));
  first_piece_.push_back(static_cast<std::int32_t>(pieces_.size()));
  for (std::size_t i = first; i < first + count; ++i) pieces_.push_back({id, pieces_[i].row_begin, pieces_[i].row_end});
  tensors_.push_back(std::move(tensor));
  return id;
}

std::int32_t State::piece_count(TensorId id) const {
  const std::size_t next = index_of(id) + 1;
  const auto end = next < first_piece_.size() ? first_piece_[next] : static_cast<std::int32_t>(pieces_.size());
  return end - first_piece_[index_of(id)];
}

std::int64_t State::bytes_of(PieceId id) const {
  const Piece& part = piece(id);
  const Tensor& whole = tensor(part.tensor);
  return (part.row_end - part.row_begin) * whole.cols * size_of(whole.dtype);
}

TensorId State::find(std::string_view name) const {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(), [&](const Tensor& t) { return t.name == name; });
  return found == tensors_.end() ? TensorId::none : static_cast<TensorId>(found - tensors_.begin());
}

std::string State::describe(PieceId id) const {
  const Piece& part = piece(id);
  return fmt::format("{}[{}:{}]", tensor(part.tensor).name, part.row_begin, part.row_end);
}

}  // namespace spillway
