// The Programs of a training run: the usual step, the steps of the other ways it may take, and the updates that
// complete them. Recorded for the ways wanted; planned together over one State.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "model/programs.h"
#include "plan/layout.h"

namespace spillway {

struct StepPrograms {
  // Steps, the usual one first. A deferred step has a `keep` step beside it, the first of a row of deferred ones.
  std::deque<TrainingProgram> steps;
  std::optional<UpdateProgram> redo;   // beside a speculative step: after it is taken back
  std::optional<UpdateProgram> flush;  // beside a deferred step: after the last of a row
  PieceSet speculated;                 // what a speculative step updates early

  const TrainingProgram& usual() const { return steps.front(); }
  // The Programs in the order in which they are planned, and for each the index of the one whose boundary it shares.
  std::vector<const Program*> programs() const;
  std::vector<std::int32_t> boundaries() const;
  std::vector<bool> ends() const;               // by Program: no update is pending after it
  std::vector<std::string_view> names() const;  // of the plans, in the same order
  // The place of a step in that order; -1 when the run has none of this way.
  std::int32_t index_of_step(UpdateWay way) const;
  bool has(UpdateWay way) const { return index_of_step(way) >= 0; }
  // Whether a step may speculate or defer, as a ClipPolicy says.
  bool go_both_ways() const { return has(UpdateWay::speculative) && has(UpdateWay::deferred); }
  std::int32_t index_of_redo() const { return static_cast<std::int32_t>(steps.size()); }
  std::int32_t index_of_flush() const { return index_of_redo() + (redo ? 1 : 0); }
  std::int32_t count() const { return index_of_flush() + (flush ? 1 : 0); }
};

// `ways`: during, after, speculative, deferred; the first is the usual one. A speculative step, and a deferred one,
// change the model's State: gradients are kept. `deferred`: what a deferred step leaves to the next one.
StepPrograms record_steps(Model& model, StepShape shape, const std::vector<UpdateWay>& ways, const PieceSet& speculated,
                          const PieceSet& deferred);

// Every trainable piece.
PieceSet all_weights(const State& state);

// Those of some layers, spread evenly over the model.
PieceSet weights_of_layers(const Model& model, std::int32_t layers);

// A speculative step is taken back bundle by bundle, so pieces whose state shares a bundle are updated on the same side
// of the norm. Removes from `speculated` all pieces that are bound to one outside; returns whether any was.
bool close_over_bundles(PieceSet& speculated, const Model& model, const Layout& layout);

// Removes pieces, with all that they are bound to, whose optimizer state lies in memory (`resident`, by bundle) for the
// most part: they are updated after the norm, which costs little.
void leave_out_residents(PieceSet& speculated, const Model& model, const Layout& layout,
                         const std::vector<bool>& resident);

// The state that a speculative step changes before the norm is known: weights, low halves and moments; and its bundles.
std::vector<PieceId> speculated_pieces(const PieceSet& speculated, const Model& model);
std::vector<BundleId> speculated_bundles(const PieceSet& speculated, const Model& model, const Layout& layout);

}  // namespace spillway
