#include "model/update.h"

#include <algorithm>
#include <utility>

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

bool same_part(const Label& a, const Label& b) {
  if (a.phase == Phase::head || b.phase == Phase::head) return a.phase == b.phase;
  return a.layer == b.layer && a.part == b.part && a.index == b.index;
}

constexpr ValueType factor_type{DType::f32, 1, 1};

// Records updates piece by piece. Pieces follow each other in segments of about one piece's elements, so that small
// tensors share one; vectors share none with matrices, whose state may lie elsewhere than that of all vectors, which
// are in memory together.
class PieceUpdates {
 public:
  PieceUpdates(Recorder& recorder, const Model& model, Operand factor, Operand scalars)
      : recorder_(recorder), model_(model), factor_(factor), scalars_(scalars) {}

  void record(const KeptGradient& of, std::int32_t n, Operand grad) {
    const State& state = model_.state();
    const Piece& piece = state.piece(nth_piece(state, of.weight, n));
    const Piece& first = state.piece(nth_piece(state, of.weight, of.first_piece));
    const std::size_t parameter = model_.parameter_of(of.weight);
    const ParameterState& tensors = model_.state_of(parameter);
    if (!(part_ == of.part)) part_ = of.part, segment_ = of.part.index * 4096, elements_ = 0;
    const std::int64_t size = (piece.row_end - piece.row_begin) * state.tensor(of.weight).cols;
    const bool decays = model_.parameters()[parameter].decays();
    const bool full = elements_ + size > model_.cut().piece_elements || decays != decays_;
    if (elements_ > 0 && full) ++segment_, elements_ = 0;
    decays_ = decays;
    elements_ += size;
    recorder_.label(update_label(of.part, segment_));
    adamw(recorder_,
          {nth_piece(state, tensors.weight, n), nth_piece(state, tensors.exp_avg, n),
           nth_piece(state, tensors.exp_avg_sq, n), nth_piece(state, tensors.low, n)},
          grad, piece.row_begin - first.row_begin, factor_, scalars_, decays);
  }

 private:
  Recorder& recorder_;
  const Model& model_;
  Operand factor_;
  Operand scalars_;
  Label part_{Phase::update, -2, -2, "", 0};  // no part of a model
  std::int64_t elements_ = 0;
  bool decays_ = true;
  std::int32_t segment_ = 0;
};

Operand kept_gradient(Recorder& recorder, const KeptGradient& kept) {
  const State& state = recorder.state();
  const TensorId tensor = state.piece(kept.gradient).tensor;
  return recorder.state_pieces(
      tensor, static_cast<std::int32_t>(index_of(kept.gradient) - index_of(state.first_piece(tensor))), 1);
}

}  // namespace

std::string_view name_of(UpdateWay way) {
  switch (way) {
    case UpdateWay::during: return "during";
    case UpdateWay::after: return "after";
    case UpdateWay::keep: return "keep";
    case UpdateWay::deferred: return "deferred";
    case UpdateWay::speculative: return "speculative";
  }
  return "?";
}

UpdateRecorder::UpdateRecorder(Recorder& recorder, const Model& model, UpdateWay way, PieceSet chosen,
                               std::vector<KeptGradient> kept)
    : recorder_(recorder), model_(model), way_(way), chosen_(std::move(chosen)), kept_before_(std::move(kept)) {
  scalars_ = recorder.input(adamw_scalars_type);
  max_norm_ = recorder.input({DType::f32, 1, 1});
  if (way == UpdateWay::deferred) {
    scalars_before_ = recorder.input(adamw_scalars_type);
    factor_before_ = recorder.input(factor_type);
  }
  // In f32 the accumulator is what norm and update read; in bf16 that is rounded from it once, and kept instead.
  if (model.dtype() == DType::f32) {
    recorder.keep_accumulators([this](const Operand& state) { return keeps(state); });
  }
}

// The piece that keeps the gradient of an operand, none when the step itself does with it.
PieceId UpdateRecorder::keeps(const Operand& state) const {
  if (way_ == UpdateWay::during || way_ == UpdateWay::after) return PieceId::none;
  const PieceId first = recorder_.program().value(state.first).piece;
  bool wanted = false;
  for (std::int32_t n = 0; n < state.count; ++n) {
    wanted = wanted || is_chosen(static_cast<PieceId>(static_cast<std::int32_t>(first) + n));
  }
  if (!wanted) return PieceId::none;
  const TensorId weight = model_.state().piece(first).tensor;
  const auto at = static_cast<std::int32_t>(index_of(first) - index_of(model_.state().first_piece(weight)));
  return model_.gradient_of(weight, at, state.count);
}

void UpdateRecorder::part_begins(const Label& part) {
  if (way_ != UpdateWay::deferred) return;
  const Label label = recorder_.label();
  PieceUpdates updates(recorder_, model_, factor_before_, scalars_before_);
  for (const KeptGradient& kept : kept_before_) {
    if (!same_part(kept.part, part)) continue;
    recorder_.keep_adjacent(kept.weight, kept.first_piece, kept.pieces);
    const Operand grad = kept_gradient(recorder_, kept);
    for (std::int32_t n = kept.first_piece; n < kept.first_piece + kept.pieces; ++n) {
      updates.record(kept, n, grad);
      ++updated_pieces_;
    }
  }
  recorder_.label(label);
}

UpdateRecorder::Final UpdateRecorder::finalize(const Operand& state, const Label& part) {
  const PieceId first = recorder_.program().value(state.first).piece;
  const TensorId weight = model_.state().piece(first).tensor;
  const auto at = static_cast<std::int32_t>(index_of(first) - index_of(model_.state().first_piece(weight)));
  Final final{{weight, at, state.count, keeps(state), part}, recorder_.accumulator(state)};
  if (model_.dtype() == DType::bf16) {
    const Operand accumulator = final.grad;
    final.grad = recorder_.round_accumulator(state, final.of.gradient);
    if (final.grad.exists()) return final;
    if (final.of.gradient == PieceId::none) {
      final.grad = round_to_bf16(recorder_, accumulator);
    } else {
      final.grad = recorder_.new_version(final.of.gradient);
      recorder_.record_into(round_to_bf16_spec, {}, {accumulator}, {final.grad});
    }
  }
  return final;
}

void UpdateRecorder::record_norm(const Final& final) {
  norm_parts_.push_back(sum_squares(recorder_, final.grad, model_.state().tensor(final.of.weight).block_rows));
}

void UpdateRecorder::part_done(const Label& part) {
  std::vector<Final> finals;
  std::int32_t index = 0;
  for (const Operand& state : recorder_.accumulated_in(part)) {
    recorder_.label({Phase::backward, part.layer, -1, part.part, part.index + index++});
    finals.push_back(finalize(state, part));
    record_norm(finals.back());
  }
  std::stable_partition(finals.begin(), finals.end(), [&](const Final& final) {
    return model_.parameters()[model_.parameter_of(final.of.weight)].decays();
  });
  for (const Final& final : finals) {
    if (final.of.gradient != PieceId::none) kept_.push_back(final.of);
  }
  switch (way_) {
    case UpdateWay::during: record_updates(finals, {}, Which::all); break;
    case UpdateWay::after: waiting_.insert(waiting_.end(), finals.begin(), finals.end()); break;
    case UpdateWay::speculative:
      record_updates(finals, {}, Which::chosen);
      waiting_.insert(waiting_.end(), finals.begin(), finals.end());
      break;
    case UpdateWay::keep:
    case UpdateWay::deferred:
      record_updates(finals, {}, Which::others);
      for (const Final& final : finals) {
        if (final.of.gradient != PieceId::none) left_pieces_ += static_cast<std::size_t>(final.of.pieces);
      }
      break;
  }
}

void UpdateRecorder::record_updates(const std::vector<Final>& finals, Operand factor, Which which) {
  PieceUpdates updates(recorder_, model_, factor, scalars_);
  for (const Final& final : finals) {
    for (std::int32_t n = final.of.first_piece; n < final.of.first_piece + final.of.pieces; ++n) {
      const bool chosen = is_chosen(nth_piece(model_.state(), final.of.weight, n));
      if (which != Which::all && chosen != (which == Which::chosen)) continue;
      updates.record(final.of, n, final.grad);
      ++updated_pieces_;
    }
  }
}

UpdateRecorder::Result UpdateRecorder::finish() {
  recorder_.label({Phase::update, -1, -1, "norm", 0});
  const Clip clip = clip_factor(recorder_, max_norm_, norm_parts_);
  record_updates(waiting_, clip.factor, way_ == UpdateWay::after ? Which::all : Which::others);
  const auto trainable_pieces = static_cast<std::size_t>(
      std::count_if(model_.state().pieces().begin(), model_.state().pieces().end(),
                    [&](const Piece& piece) { return model_.state().tensor(piece.tensor).trainable; }));
  const auto chosen_pieces = static_cast<std::size_t>(std::count(chosen_.begin(), chosen_.end(), true));
  const std::size_t left_pieces = leaves_updates() ? chosen_pieces : 0;
  const std::size_t due_pieces = trainable_pieces - (way_ == UpdateWay::keep ? left_pieces : 0);
  SPILLWAY_CHECK(updated_pieces_ == due_pieces && left_pieces_ == left_pieces,
                 "{} of {} pieces are updated, {} left for later", updated_pieces_, trainable_pieces, left_pieces_);
  return {clip.norm, clip.factor, std::move(kept_)};
}

UpdateProgram record_update(const Model& model, const std::vector<KeptGradient>& kept, const PieceSet& speculated) {
  UpdateProgram out;
  Recorder recorder(out.program, model.state());
  out.adamw = recorder.input(adamw_scalars_type);
  out.factor = recorder.input(factor_type);
  PieceUpdates updates(recorder, model, out.factor, out.adamw);
  for (const KeptGradient& gradient : kept) {
    const Operand grad = kept_gradient(recorder, gradient);
    for (std::int32_t n = gradient.first_piece; n < gradient.first_piece + gradient.pieces; ++n) {
      const PieceId weight = nth_piece(model.state(), gradient.weight, n);
      if (!speculated.empty() && !speculated[index_of(weight)]) continue;
      updates.record(gradient, n, grad);
    }
    out.program.consumed.push_back(gradient.gradient);
  }
  return out;
}

}  // namespace spillway
