// The end of a step: gradients become final, their norm is taken, and every piece is updated. Records the ops; which
// come when depends on the way of the step.
#pragma once

#include <string_view>
#include <vector>

#include "model/model.h"

namespace spillway {

// When a step updates. All give the same bits.
enum class UpdateWay : std::uint8_t {
  during,       // each part during backward, as soon as its gradients are complete. Does not clip
  after,        // after the norm of all gradients is known
  keep,         // gradients of some pieces, or of all, are kept for a later update; the others as `during`
  deferred,     // these before their part's forward, from the gradients kept by the step before; then as `keep`
  speculative,  // as `during`, with gradients kept, so that a step that clips can be taken back and updated again
};
std::string_view name_of(UpdateWay way);  // "during", …

// The gradient of an operand, a tensor or a tile of one, that outlives its step.
struct KeptGradient {
  TensorId weight = TensorId::none;
  std::int32_t first_piece = 0;  // of the weight
  std::int32_t pieces = 0;
  PieceId gradient = PieceId::none;
  Label part;  // where the weight is used first
};

// By PieceId of weights.
using PieceSet = std::vector<bool>;

class UpdateRecorder {
 public:
  // Records the inputs. `chosen`: what a speculative step updates before the norm is known, and what one that keeps
  // gradients leaves to the next step: all, or, where nothing clips, some. `kept` (deferred) are the gradients of the
  // step before.
  UpdateRecorder(Recorder& recorder, const Model& model, UpdateWay way, PieceSet chosen = {},
                 std::vector<KeptGradient> kept = {});

  Operand scalars() const { return scalars_; }                // input f32 (1, 9)
  Operand max_norm() const { return max_norm_; }              // input f32 (1, 1)
  Operand scalars_before() const { return scalars_before_; }  // deferred: input f32 (1, 9), of the step before
  Operand factor_before() const { return factor_before_; }    // deferred: input f32 (1, 1), of the step before

  // The forward of this part follows.
  void part_begins(const Label& part);
  // Nothing more is added to the gradients of tensors first used in this part.
  void part_done(const Label& part);

  struct Result {
    Operand norm;    // output f64 (1, 1)
    Operand factor;  // output f32 (1, 1)
    std::vector<KeptGradient> kept;
  };
  // After all parts. Checks that every trainable piece is updated once, by the step or from what it kept.
  Result finish();

 private:
  // Final gradient of one operand.
  struct Final {
    KeptGradient of;  // its `gradient` none when it is not kept
    Operand grad;
  };
  enum class Which : std::uint8_t { all, chosen, others };

  PieceId keeps(const Operand& state) const;
  Final finalize(const Operand& state, const Label& part);
  void record_norm(const Final& final);
  void record_updates(const std::vector<Final>& finals, Operand factor, Which which);
  bool is_chosen(PieceId weight) const { return !chosen_.empty() && chosen_[index_of(weight)]; }
  bool leaves_updates() const { return way_ == UpdateWay::keep || way_ == UpdateWay::deferred; }

  Recorder& recorder_;
  const Model& model_;
  UpdateWay way_;
  PieceSet chosen_;
  std::vector<KeptGradient> kept_before_;
  Operand scalars_;
  Operand max_norm_;
  Operand scalars_before_;
  Operand factor_before_;
  std::vector<Final> waiting_;  // for the clip factor
  std::vector<KeptGradient> kept_;
  std::size_t updated_pieces_ = 0;
  std::size_t left_pieces_ = 0;      // for a later update
  std::vector<Operand> norm_parts_;  // f64 block sums, by gradient
};

// Updates outside a step, from kept gradients: of all their pieces, or of the speculated ones. The gradients are
// consumed.
struct UpdateProgram {
  Program program;
  Operand adamw;   // input f32 (1, 9): AdamwScalars of the step that kept them
  Operand factor;  // input f32 (1, 1): its clip factor
};
UpdateProgram record_update(const Model& model, const std::vector<KeptGradient>& kept, const PieceSet& speculated = {});

}  // namespace spillway
