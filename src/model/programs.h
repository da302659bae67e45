// The Programs of a model: a training step, an evaluation step, and a step of generation.
#pragma once

#include <vector>

#include "model/model.h"
#include "model/update.h"
#include "program/recompute.h"

namespace spillway {

// In which order micro-batches meet the parts of the model. Gradients are summed over micro-batches in ascending order
// either way, so no bit depends on it.
enum class WorkOrder : std::uint8_t {
  by_layer,        // all micro-batches go through a part before any goes on: weights are needed twice a step
  by_micro_batch,  // one goes forward and backward before the next: activations live shortly
};
std::string_view name_of(WorkOrder order);

struct StepShape {
  std::int64_t sequences = 0;  // of a micro-batch
  std::int64_t sequence_length = 0;
  std::int64_t micro_batches = 0;
  UpdateWay way = UpdateWay::during;
  WorkOrder order = WorkOrder::by_layer;
  Recompute recompute = {};
  bool late_head_gradient = true;  // of a tied head and a single micro-batch, where that takes less memory

  std::int64_t tokens() const { return sequences * sequence_length; }  // of a micro-batch
};

// Inputs of one micro-batch of T tokens; each i32 (T, 1).
struct MicroBatchInputs {
  Operand ids;
  Operand targets;  // -1: none
  Operand positions;
};

struct TrainingProgram {
  UpdateWay way = UpdateWay::during;
  Program program;
  std::vector<MicroBatchInputs> micro_batches;
  Operand inverse_frequencies;  // input f32 (d/2, 1); absent without rope
  Operand scale;                // input f32 (1, 1): 1 / targets of the step
  Operand adamw;                // input f32 (1, 9): AdamwScalars of this step
  Operand adamw_before;         // input f32 (1, 9), deferred only: AdamwScalars of the step before
  Operand factor_before;        // input f32 (1, 1), deferred only: its clip factor
  Operand max_norm;             // input f32 (1, 1); 0: no clipping
  Operand loss;                 // output f64 (1, 1): sum over the step's targets
  Operand norm;                 // output f64 (1, 1): of all gradients, before clipping
  Operand factor;               // output f32 (1, 1): what clips them
  std::vector<KeptGradient> kept;
};

// `chosen`: the weights' pieces that a speculative step updates before the norm is known, or that a step which keeps
// gradients leaves to the next one. `kept`, for a deferred step: what such a step kept. Gradients are kept only by a
// model with keep_gradients().
TrainingProgram record_training(const Model& model, const StepShape& shape, PieceSet chosen = {},
                                std::vector<KeptGradient> kept = {});

struct EvaluationProgram {
  Program program;
  std::vector<MicroBatchInputs> micro_batches;
  Operand inverse_frequencies;
  Operand scale;  // input, not used by the loss
  Operand loss;   // output f64 (1, 1)
};

EvaluationProgram record_evaluation(const Model& model, const StepShape& shape);

// One step of generation over `rows` fresh tokens (several while the prompt is read, then one), with the key/value
// cache as state tensors that no commit holds.
struct CacheTensors {
  std::vector<TensorId> keys;  // by layer
  std::vector<TensorId> values;
};
CacheTensors add_cache(Model& model, std::int64_t rows);

struct GenerationProgram {
  Program program;
  Operand ids;        // input i32 (rows, 1)
  Operand positions;  // input i32 (rows, 1); -1: no token in this row
  Operand inverse_frequencies;
  std::vector<Operand> logits;  // outputs f32 (1, tile): of the last row
};

GenerationProgram record_generation(const Model& model, const CacheTensors& cache, std::int64_t rows);

}  // namespace spillway
