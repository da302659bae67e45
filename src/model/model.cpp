#include "model/model.h"

#include <algorithm>

#include "base/error.h"
#include "ops/adamw/adamw.h"

namespace spillway {

namespace {

// Rows shorter than a block would be mostly exponents.
bool packs_moments(const Parameter& parameter) { return parameter.decays() && parameter.cols() >= packed_block; }

}  // namespace

Cut cut_for(Moments moments) {
  Cut cut;
  if (moments == Moments::packed) cut.piece_elements = 15 * reduction_block_elements;
  return cut;
}

Model::Model(const ModelConfig& config, DType dtype, Purpose purpose, const Cut& cut, Moments moments)
    : config_(config), dtype_(dtype), cut_(cut), parameters_(parameters_of(config)) {
  SPILLWAY_CHECK(dtype == DType::f32 || dtype == DType::bf16, "model of {}", name_of(dtype));
  for (const Parameter& parameter : parameters_) add_parameter(parameter, purpose, moments);
  cut_tiles();
}

void Model::add_parameter(const Parameter& parameter, Purpose purpose, Moments moments) {
  const auto add = [&](std::string_view suffix, DType dtype, bool trainable) {
    Tensor tensor;
    tensor.name = parameter.name + std::string(suffix);
    tensor.dtype = dtype;
    tensor.rows = parameter.rows();
    tensor.cols = parameter.cols();
    tensor.trainable = trainable;
    return state_.add(std::move(tensor), cut_.piece_elements);
  };
  const bool training = purpose == Purpose::training;
  ParameterState state;
  state.weight = add("", dtype_, training);
  if (training) {
    if (dtype_ == DType::bf16) state.low = add(".low", DType::u16, false);
    const bool packed = moments == Moments::packed && packs_moments(parameter);
    const ValueType type = packed ? packed_moment_type(parameter.rows(), parameter.cols())
                                  : ValueType{DType::f32, parameter.rows(), parameter.cols()};
    const auto add_moment = [&](std::string_view suffix) {
      Tensor tensor;
      tensor.name = parameter.name + std::string(suffix);
      tensor.dtype = type.dtype;
      tensor.rows = type.rows;
      tensor.cols = type.cols;
      return state_.add_cut_like(std::move(tensor), state.weight);
    };
    state.exp_avg = add_moment(".exp_avg");
    state.exp_avg_sq = add_moment(".exp_avg_sq");
  }
  by_name_[parameter.name] = parameter_state_.size();
  parameter_state_.push_back(state);
}

void Model::cut_tiles() {
  const TensorId embedding = weight(embedding_name(config_));
  const Tensor& whole = state_.tensor(embedding);
  const std::int32_t pieces = state_.piece_count(embedding);
  const auto first = static_cast<std::int32_t>(state_.first_piece(embedding));
  const Piece& piece = state_.piece(static_cast<PieceId>(first));
  const std::int64_t piece_elements = (piece.row_end - piece.row_begin) * whole.cols;
  const auto per_tile = static_cast<std::int32_t>(std::max<std::int64_t>(1, cut_.tile_elements / piece_elements));
  for (std::int32_t at = 0; at < pieces; at += per_tile) {
    const std::int32_t count = std::min(per_tile, pieces - at);
    tiles_.push_back({at, count, state_.piece(static_cast<PieceId>(first + at)).row_begin,
                      state_.piece(static_cast<PieceId>(first + at + count - 1)).row_end});
  }
}

void Model::keep_gradients() {
  if (keeps_gradients()) return;
  for (const Parameter& parameter : parameters_) {
    const bool of_vocabulary = parameter.name == embedding_name(config_) || parameter.name == head_name(config_);
    const bool tiled = of_vocabulary && tiles_.size() > 1;
    Tensor tensor;
    tensor.name = "grad." + parameter.name;
    tensor.dtype = dtype_;
    tensor.rows = parameter.rows();
    tensor.cols = parameter.cols();
    tensor.committed = false;
    const std::int64_t rows = tiled ? tiles_.front().row_end - tiles_.front().row_begin : 2 * parameter.rows();
    gradients_.push_back(state_.add(std::move(tensor), rows * parameter.cols()));
  }
}

PieceId Model::gradient_of(TensorId weight, std::int32_t first_piece, std::int32_t count) const {
  const auto nth = [](PieceId first, std::int32_t n) {
    return static_cast<PieceId>(static_cast<std::int32_t>(first) + n);
  };
  const PieceId first = state_.first_piece(weight);
  const std::int64_t row_begin = state_.piece(nth(first, first_piece)).row_begin;
  const std::int64_t row_end = state_.piece(nth(first, first_piece + count - 1)).row_end;
  const TensorId gradient = gradients_[parameter_of(weight)];
  for (std::int32_t n = 0; n < state_.piece_count(gradient); ++n) {
    const PieceId id = nth(state_.first_piece(gradient), n);
    if (state_.piece(id).row_begin == row_begin && state_.piece(id).row_end == row_end) return id;
  }
  SPILLWAY_CHECK(false, "rows [{}, {}) of {} are no piece of its gradient", row_begin, row_end,
                 state_.tensor(weight).name);
  return PieceId::none;
}

std::int64_t Model::parameter_count() const {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters_) count += parameter.elements();
  return count;
}

std::size_t Model::parameter_of(TensorId weight) const {
  const auto found = std::find_if(parameter_state_.begin(), parameter_state_.end(),
                                  [&](const ParameterState& state) { return state.weight == weight; });
  SPILLWAY_CHECK(found != parameter_state_.end(), "tensor {} is no weight", index_of(weight));
  return static_cast<std::size_t>(found - parameter_state_.begin());
}

TensorId Model::weight(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  SPILLWAY_CHECK(found != by_name_.end(), "the schema has no {}", name);
  return parameter_state_[found->second].weight;
}

}  // namespace spillway
