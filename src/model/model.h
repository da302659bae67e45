// A model as State: every parameter with its optimizer state, and the vocabulary's tiles. What a Program's recording
// code asks for weights.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/schema.h"
#include "program/record.h"
#include "state/state.h"

namespace spillway {

// How state and the head's work are cut. Part of the Program. No sum depends on pieces, whose blocks order the sums;
// the head's products do depend on tiles and on the head's grid.
struct Cut {
  std::int64_t piece_elements = std::int64_t{1} << 20;  // of one update
  std::int64_t tile_elements = std::int64_t{1} << 22;   // of one vocabulary tile
  bool large_head = false;  // the grid of model/head.h for a device, whose products want more rows
};

// How moments are kept: f32, or for matrices 8 bits an element (ops/adamw/packed.h), which changes numbers.
enum class Moments : std::uint8_t { f32, packed };

// The default cut. With moments in 8 bits a piece is a little smaller, so that its optimizer state just fits 4 MiB.
Cut cut_for(Moments moments);

// The state tensors of one parameter. In f32 the weight is the master; in bf16 it is its high half and `low` the rest.
struct ParameterState {
  TensorId weight = TensorId::none;
  TensorId low = TensorId::none;
  TensorId exp_avg = TensorId::none;
  TensorId exp_avg_sq = TensorId::none;
};

// Some pieces of an embedding or head that follow each other: rows [row_begin, row_end) of the vocabulary.
struct Tile {
  std::int32_t first_piece = 0;
  std::int32_t pieces = 0;
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
};

// Whether the optimizer's tensors are wanted: not for evaluation and generation.
enum class Purpose : std::uint8_t { training, inference };

class Model {
 public:
  // dtype is f32 or bf16.
  Model(const ModelConfig& config, DType dtype, Purpose purpose, const Cut& cut, Moments moments = Moments::f32);

  const ModelConfig& config() const { return config_; }
  DType dtype() const { return dtype_; }
  const State& state() const { return state_; }
  State& state() { return state_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const ParameterState& state_of(std::size_t parameter) const { return parameter_state_[parameter]; }
  std::int64_t parameter_count() const;
  const Cut& cut() const { return cut_; }

  // Adds a state tensor "grad." + name for every parameter, so that gradients may outlive a step: what norm and update
  // read, in the model's dtype. Its pieces are the operands that gradients are taken of: a tile of the vocabulary's
  // tensors, any other whole.
  void keep_gradients();
  bool keeps_gradients() const { return !gradients_.empty(); }
  // The piece that keeps the gradient of these pieces of a weight, one such operand.
  PieceId gradient_of(TensorId weight, std::int32_t first_piece, std::int32_t count) const;

  // The index of the parameter a weight tensor belongs to.
  std::size_t parameter_of(TensorId weight) const;
  TensorId weight(std::string_view name) const;
  bool has(std::string_view name) const { return by_name_.contains(std::string(name)); }
  // The tiles of the embedding; those of the head are cut alike.
  const std::vector<Tile>& tiles() const { return tiles_; }

 private:
  void add_parameter(const Parameter& parameter, Purpose purpose, Moments moments);
  void cut_tiles();

  ModelConfig config_;
  DType dtype_;
  Cut cut_;
  State state_;
  std::vector<Parameter> parameters_;
  std::vector<ParameterState> parameter_state_;
  std::vector<TensorId> gradients_;  // by parameter, when they are kept
  std::map<std::string, std::size_t> by_name_;
  std::vector<Tile> tiles_;
};

}  // namespace spillway
