#include "session/step_programs.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/error.h"

namespace spillway {
namespace {

// The pieces updated with a weight's piece, that one included.
std::vector<PieceId> updated_with(const Model& model, PieceId weight) {
  const State& state = model.state();
  const TensorId tensor = state.piece(weight).tensor;
  const std::size_t n = index_of(weight) - index_of(state.first_piece(tensor));
  const ParameterState& all = model.state_of(model.parameter_of(tensor));
  std::vector<PieceId> pieces;
  for (const TensorId other : {all.weight, all.low, all.exp_avg, all.exp_avg_sq}) {
    if (other != TensorId::none) pieces.push_back(static_cast<PieceId>(index_of(state.first_piece(other)) + n));
  }
  return pieces;
}

bool is_weight(const State& state, std::size_t piece) { return state.tensor(state.pieces()[piece].tensor).trainable; }

// Bundles joined where one weight's piece has state in both: union-find by bundle.
class Bonds {
 public:
  Bonds(const Model& model, const Layout& layout)
      : model_(model), layout_(layout), parent_(static_cast<std::size_t>(layout.state_bundles)) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
    for_each_weight([&](PieceId weight, std::size_t bond) {
      for (const PieceId other : updated_with(model_, weight)) parent_[root(bundle_of(other))] = root(bond);
    });
  }

  template <typename Visit>
  void for_each_weight(const Visit& visit) {
    const State& state = model_.state();
    for (std::size_t p = 0; p < state.pieces().size(); ++p) {
      if (is_weight(state, p)) visit(static_cast<PieceId>(p), root(bundle_of(static_cast<PieceId>(p))));
    }
  }

  std::size_t bundle_of(PieceId piece) const { return index_of(layout_.piece_places[index_of(piece)].bundle); }
  std::size_t count() const { return parent_.size(); }

 private:
  std::size_t root(std::size_t bundle) {
    while (parent_[bundle] != bundle) bundle = parent_[bundle] = parent_[parent_[bundle]];
    return bundle;
  }

  const Model& model_;
  const Layout& layout_;
  std::vector<std::size_t> parent_;
};

}  // namespace

std::vector<const Program*> StepPrograms::programs() const {
  std::vector<const Program*> all;
  for (const TrainingProgram& step : steps) all.push_back(&step.program);
  if (redo) all.push_back(&redo->program);
  if (flush) all.push_back(&flush->program);
  return all;
}

std::vector<std::int32_t> StepPrograms::boundaries() const {
  const std::int32_t deferred = index_of_step(UpdateWay::deferred);
  std::vector<std::int32_t> owners;
  for (const TrainingProgram& step : steps) {
    const bool defers = step.way == UpdateWay::deferred || step.way == UpdateWay::keep;
    owners.push_back(defers ? deferred : 0);
  }
  if (redo) owners.push_back(index_of_step(UpdateWay::speculative));
  if (flush) owners.push_back(deferred);
  return owners;
}

std::vector<bool> StepPrograms::ends() const {
  std::vector<bool> ends;
  for (const TrainingProgram& step : steps) {
    ends.push_back(step.way != UpdateWay::deferred && step.way != UpdateWay::keep);
  }
  ends.resize(static_cast<std::size_t>(count()), true);
  return ends;
}

std::vector<std::string_view> StepPrograms::names() const {
  std::vector<std::string_view> all;
  for (const TrainingProgram& step : steps) all.push_back(step.way == steps.front().way ? "train" : name_of(step.way));
  if (redo) all.push_back("redo");
  if (flush) all.push_back("flush");
  return all;
}

std::int32_t StepPrograms::index_of_step(UpdateWay way) const {
  const auto found = std::find_if(steps.begin(), steps.end(), [&](const auto& step) { return step.way == way; });
  return found == steps.end() ? -1 : static_cast<std::int32_t>(found - steps.begin());
}

StepPrograms record_steps(Model& model, StepShape shape, const std::vector<UpdateWay>& ways, const PieceSet& speculated,
                          const PieceSet& deferred) {
  StepPrograms out;
  for (const UpdateWay way : ways) {
    shape.way = way;
    if (way == UpdateWay::speculative) {
      model.keep_gradients();
      out.speculated = speculated;
      out.speculated.resize(model.state().pieces().size(), false);
      out.steps.push_back(record_training(model, shape, out.speculated));
      out.redo = record_update(model, out.steps.back().kept, out.speculated);
    } else if (way == UpdateWay::deferred) {
      model.keep_gradients();
      shape.way = UpdateWay::keep;
      TrainingProgram keep = record_training(model, shape, deferred);
      shape.way = UpdateWay::deferred;
      out.steps.push_back(record_training(model, shape, deferred, keep.kept));
      out.flush = record_update(model, keep.kept);
      out.steps.push_back(std::move(keep));
    } else {
      out.steps.push_back(record_training(model, shape));
    }
  }
  return out;
}

PieceSet all_weights(const State& state) {
  PieceSet all(state.pieces().size(), false);
  for (std::size_t p = 0; p < all.size(); ++p) all[p] = is_weight(state, p);
  return all;
}

PieceSet weights_of_layers(const Model& model, std::int32_t layers) {
  const State& state = model.state();
  const std::int64_t all = model.config().num_hidden_layers;
  PieceSet chosen(state.pieces().size(), false);
  for (std::size_t p = 0; p < chosen.size(); ++p) {
    if (!is_weight(state, p)) continue;
    const std::int64_t layer = model.parameters()[model.parameter_of(state.pieces()[p].tensor)].layer;
    chosen[p] = layer >= 0 && (layer + 1) * layers / all > layer * layers / all;
  }
  return chosen;
}

bool close_over_bundles(PieceSet& speculated, const Model& model, const Layout& layout) {
  Bonds bonds(model, layout);
  std::vector<bool> waits(bonds.count(), false);
  bonds.for_each_weight([&](PieceId weight, std::size_t bond) {
    if (!speculated[index_of(weight)]) waits[bond] = true;
  });
  bool removed = false;
  bonds.for_each_weight([&](PieceId weight, std::size_t bond) {
    if (!speculated[index_of(weight)] || !waits[bond]) return;
    speculated[index_of(weight)] = false;
    removed = true;
  });
  return removed;
}

void leave_out_residents(PieceSet& speculated, const Model& model, const Layout& layout,
                         const std::vector<bool>& resident) {
  Bonds bonds(model, layout);
  std::vector<std::int64_t> spilled_bytes(bonds.count(), 0);  // less what is in memory
  bonds.for_each_weight([&](PieceId weight, std::size_t bond) {
    for (const PieceId other : updated_with(model, weight)) {
      if (other == weight) continue;
      const std::int64_t bytes = model.state().bytes_of(other);
      spilled_bytes[bond] += resident[bonds.bundle_of(other)] ? -bytes : bytes;
    }
  });
  bonds.for_each_weight([&](PieceId weight, std::size_t bond) {
    if (spilled_bytes[bond] <= 0) speculated[index_of(weight)] = false;
  });
}

std::vector<PieceId> speculated_pieces(const PieceSet& speculated, const Model& model) {
  std::vector<PieceId> pieces;
  for (std::size_t p = 0; p < speculated.size(); ++p) {
    if (!speculated[p]) continue;
    for (const PieceId piece : updated_with(model, static_cast<PieceId>(p))) pieces.push_back(piece);
  }
  return pieces;
}

std::vector<BundleId> speculated_bundles(const PieceSet& speculated, const Model& model, const Layout& layout) {
  std::vector<BundleId> bundles;
  for (const PieceId piece : speculated_pieces(speculated, model)) {
    bundles.push_back(layout.piece_places[index_of(piece)].bundle);
  }
  std::sort(bundles.begin(), bundles.end());
  bundles.erase(std::unique(bundles.begin(), bundles.end()), bundles.end());
  return bundles;
}

}  // namespace spillway
