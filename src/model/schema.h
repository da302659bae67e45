// The schema: one row a parameter tensor, in the order of the model file. Initialisation, loading, saving, the
// optimizer and inspection visit the rows; no tensor is listed twice.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"

namespace spillway {

enum class Init : std::uint8_t { normal, residual_normal, ones, zeros };  // residual_normal: / sqrt(2 * layers), gpt2

struct Parameter {
  std::string name;                 // the Hugging Face name, without the prefix some files of gpt2 have
  std::vector<std::int64_t> shape;  // as stored
  Init init = Init::normal;
  std::int64_t layer = -1;  // -1: of no layer

  bool decays() const { return shape.size() >= 2; }
  std::int64_t rows() const { return shape.front(); }
  std::int64_t cols() const { return shape.size() >= 2 ? shape[1] : 1; }
  std::int64_t elements() const { return rows() * cols(); }
};

// A tied head has no row of its own.
std::vector<Parameter> parameters_of(const ModelConfig& config);

// The embedding, which a tied head shares, and the head.
std::string embedding_name(const ModelConfig& config);
std::string head_name(const ModelConfig& config);

}  // namespace spillway
