#include "model/update.h"

#include "base/error.h"
#include "ops/adamw/adamw.h"
#include "ops/grad_norm/grad_norm.h"
#include "ops/round/round.h"

namespace spillway {
namespace {

PieceId nth_piece(const State& state, TensorId tensor, std::int32_t n) {
  if (tensor == TensorId::none) return PieceId::none;
  return static_cast<PieceId>(static_cast<std::int32_t>(state.first_piece(tensor)) + n);
}

Label update_label(const Label& part, std::int32_t index) { return {Phase::update, part.layer, -1, part.part, index}; }

}  // namespace

UpdateRecorder::UpdateRecorder(Recorder& recorder, const Model& model, bool clips)
    : recorder_(recorder), model_(model), clips_(clips) {
  scalars_ = recorder.input(adamw_scalars_type);
  max_norm_ = recorder.input({DType::f32, 1, 1});
}

Operand UpdateRecorder::round(const Operand& accumulator) {
  return model_.dtype() == DType::bf16 ? round_to_bf16(recorder_, accumulator) : accumulator;
}

void UpdateRecorder::record_norm(const Final& final) {
  const PieceId piece = recorder_.program().value(final.state.first).piece;
  const Tensor& tensor = model_.state().tensor(model_.state().piece(piece).tensor);
  norm_parts_.push_back(sum_squares(recorder_, final.grad, tensor.block_rows));
}

void UpdateRecorder::part_done(const Label& part) {
  std::vector<Final> finals;
  std::int32_t index = 0;
  for (const Operand& state : recorder_.accumulated_in(part)) {
    recorder_.label({Phase::backward, part.layer, -1, part.part, part.index + index++});
    finals.push_back({state, round(recorder_.accumulator(state)), part});
    record_norm(finals.back());
  }
  if (clips_) {
    waiting_.insert(waiting_.end(), finals.begin(), finals.end());
  } else {
    record_updates(finals, {});
  }
}

// Pieces follow each other in segments of about one piece's elements, so that small tensors share one.
void UpdateRecorder::record_updates(const std::vector<Final>& finals, Operand factor) {
  const State& state = model_.state();
  std::int64_t elements = 0;
  std::int32_t segment = 0;
  const Label* last_part = nullptr;
  for (const Final& final : finals) {
    if (last_part == nullptr || !(*last_part == final.part)) segment = final.part.index * 4096, elements = 0;
    last_part = &final.part;
    const Piece first = state.piece(recorder_.program().value(final.state.first).piece);
    const std::size_t parameter = model_.parameter_of(first.tensor);
    const ParameterState& tensors = model_.state_of(parameter);
    const std::int32_t from = static_cast<std::int32_t>(index_of(recorder_.program().value(final.state.first).piece)) -
                              static_cast<std::int32_t>(state.first_piece(first.tensor));
    for (std::int32_t n = from; n < from + final.state.count; ++n) {
      const Piece& piece = state.piece(nth_piece(state, tensors.weight, n));
      const std::int64_t size = (piece.row_end - piece.row_begin) * state.tensor(first.tensor).cols;
      if (elements > 0 && elements + size > model_.cut().piece_elements) ++segment, elements = 0;
      elements += size;
      recorder_.label(update_label(final.part, segment));
      ++updated_pieces_;
      adamw(recorder_,
            {nth_piece(state, tensors.weight, n), nth_piece(state, tensors.exp_avg, n),
             nth_piece(state, tensors.exp_avg_sq, n), nth_piece(state, tensors.low, n)},
            final.grad, piece.row_begin - first.row_begin, factor, scalars_, model_.parameters()[parameter].decays());
    }
  }
}

Operand UpdateRecorder::finish() {
  recorder_.label({Phase::update, -1, -1, "norm", 0});
  const Clip clip = clip_factor(recorder_, max_norm_, norm_parts_);
  if (clips_) record_updates(waiting_, clip.factor);
  std::size_t trainable_pieces = 0;
  for (const Piece& piece : model_.state().pieces()) {
    if (model_.state().tensor(piece.tensor).trainable) ++trainable_pieces;
  }
  SPILLWAY_CHECK(updated_pieces_ == trainable_pieces, "{} of {} pieces are updated", updated_pieces_, trainable_pieces);
  return clip.norm;
}

}  // namespace spillway
