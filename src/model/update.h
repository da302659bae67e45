// The end of a step: gradients become final, their norm is taken, and every piece is updated. Records the ops; which
// come when depends on whether the step clips.
#pragma once

#include <vector>

#include "model/model.h"

namespace spillway {

class UpdateRecorder {
 public:
  // A step that clips takes the norm of all gradients before the first update; one that does not updates each part as
  // soon as its gradients are complete. Either way the norm is an output.
  UpdateRecorder(Recorder& recorder, const Model& model, bool clips);

  Operand scalars() const { return scalars_; }    // input f32 (1, 8)
  Operand max_norm() const { return max_norm_; }  // input f32 (1, 1)

  // Nothing more is added to the gradients of tensors first used in this part.
  void part_done(const Label& part);
  // After all parts. Returns the norm, an output f64 (1, 1). Checks that every trainable piece is updated once.
  Operand finish();

 private:
  // Final gradient of one operand: a tensor, or a tile of one.
  struct Final {
    Operand state;
    Operand grad;
    Label part;
  };

  Operand round(const Operand& accumulator);
  void record_norm(const Final& final);
  void record_updates(const std::vector<Final>& finals, Operand factor);

  Recorder& recorder_;
  const Model& model_;
  bool clips_;
  Operand scalars_;
  Operand max_norm_;
  std::vector<Final> waiting_;  // for the clip factor
  std::size_t updated_pieces_ = 0;
  std::vector<Operand> norm_parts_;  // f64 block sums, by gradient
};

}  // namespace spillway
