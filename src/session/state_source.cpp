#include "session/state_source.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace spillway {

void ExecutorSource::read(const Tensor& tensor, std::int64_t row_begin, std::span<std::byte> into) {
  const TensorId id = state_.find(tensor.name);
  SPILLWAY_CHECK(id != TensorId::none, "{} is not in the state", tensor.name);
  const std::int64_t row_bytes = tensor.cols * size_of(tensor.dtype);
  const std::int64_t row_end = row_begin + static_cast<std::int64_t>(into.size()) / row_bytes;
  const auto first = static_cast<std::int32_t>(state_.first_piece(id));
  for (std::int32_t n = 0; n < state_.piece_count(id); ++n) {
    const auto piece = static_cast<PieceId>(first + n);
    const std::int64_t begin = std::max(row_begin, state_.piece(piece).row_begin);
    const std::int64_t end = std::min(row_end, state_.piece(piece).row_end);
    if (begin >= end) continue;
    executor_.visit_piece(piece, false, [&](const std::byte* data) {
      std::memcpy(into.data() + (begin - row_begin) * row_bytes,
                  data + (begin - state_.piece(piece).row_begin) * row_bytes,
                  static_cast<std::size_t>((end - begin) * row_bytes));
    });
  }
}

void restore_state(Executor& executor, const Layout& layout, const State& state, StateSource& source,
                   const std::function<void()>& between) {
  std::vector<PieceId> order;
  for (std::size_t p = 0; p < state.pieces().size(); ++p) {
    if (state.tensor(state.pieces()[p].tensor).committed) order.push_back(static_cast<PieceId>(p));
  }
  // Those of a bundle together: each is then written once.
  const auto bundle = [&](PieceId piece) { return layout.piece_places[index_of(piece)].bundle; };
  std::stable_sort(order.begin(), order.end(), [&](PieceId a, PieceId b) { return bundle(a) < bundle(b); });
  for (const PieceId id : order) {
    if (between) between();
    const Piece& piece = state.piece(id);
    const Tensor& tensor = state.tensor(piece.tensor);
    const std::int64_t row_bytes = tensor.cols * size_of(tensor.dtype);
    executor.visit_piece(id, true, [&](std::byte* data) {
      for_each_block(tensor, piece, [&](std::int64_t row_begin, std::int64_t row_end) {
        std::byte* const block = data + (row_begin - piece.row_begin) * row_bytes;
        source.read(tensor, row_begin, {block, static_cast<std::size_t>((row_end - row_begin) * row_bytes)});
      });
    });
  }
}

}  // namespace spillway
