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
  keep,         // not at all: gradients are kept for a later update
  deferred,     // each part before its forward, from the gradients kept by the step before; then as `keep`
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

// By PieceId of weights: those that a speculative step updates before the norm is known.
using PieceSet = std::vector<bool>;

class UpdateRecorder {
 public:
  // Records the inputs. `kept` (deferred) are the gradients of the step before; `speculated` is for a speculative step.
  UpdateRecorder(Recorder& recorder, const Model& model, UpdateWay way, std::vector<KeptGradient> kept = {},
                 PieceSet speculated = {});

  Operand scalars() const { return scalars_; }    // input f32 (1, 9)
  Operand max_norm() const { return max_norm_; }  // input f32 (1, 1)
  Operand factor() const { return factor_; }      // deferred: input f32 (1, 1), of the step before

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
  enum class Which : std::uint8_t { all, speculated, waiting };

  PieceId keeps(const Operand& state) const;
  Final finalize(const Operand& state, const Label& part);
  void record_norm(const Final& final);
  void record_updates(const std::vector<Final>& finals, Operand factor, Which which);
  bool is_speculated(PieceId weight) const { return !speculated_.empty() && speculated_[index_of(weight)]; }

  Recorder& recorder_;
  const Model& model_;
  UpdateWay way_;
  std::vector<KeptGradient> kept_before_;
  PieceSet speculated_;
  Operand scalars_;
  Operand max_norm_;
  Operand factor_;
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
