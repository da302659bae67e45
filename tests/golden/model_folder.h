// Writes the model folder and the tokens of a golden case, by formula.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "formats/hf_config.h"
#include "formats/safetensors.h"
#include "golden/formula.h"
#include "model/schema.h"

namespace spillway::golden {

// A llama of this shape, for tests to which any model is good enough.
inline nlohmann::json llama_of(int layers, int hidden_size, int vocab_size) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", vocab_size},
          {"hidden_size", hidden_size},
          {"intermediate_size", 2 * hidden_size},
          {"num_hidden_layers", layers},
          {"num_attention_heads", hidden_size / 16},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-5},
          {"tie_word_embeddings", false}};
}

inline std::vector<SafetensorsTensor> tensors_of(const nlohmann::json& config, const std::string& prefix) {
  const ModelConfig model = parse_hf_config(config.dump(), "config.json").model;
  std::vector<SafetensorsTensor> tensors;
  for (const Parameter& parameter : parameters_of(model)) {
    const bool head = parameter.name == "lm_head.weight";
    tensors.push_back({head ? parameter.name : prefix + parameter.name, "F32", parameter.shape});
  }
  return tensors;
}

inline void write_model(const std::filesystem::path& to, const nlohmann::json& config, const std::string& prefix) {
  std::filesystem::create_directories(to);
  std::ofstream(to / "config.json") << config.dump(2);
  const std::vector<SafetensorsTensor> tensors = tensors_of(config, prefix);
  ModelFolderWriter writer(to, tensors);
  for (const SafetensorsTensor& tensor : tensors) {
    std::int64_t elements = 1;
    for (const std::int64_t size : tensor.shape) elements *= size;
    std::vector<float> values(static_cast<std::size_t>(elements));
    fill_weights(tensor.name, static_cast<std::int64_t>(tensor.shape.size()), values);
    writer.write(tensor.name, 0, std::as_bytes(std::span(values)));
  }
  writer.finish();
}

// A one-dimensional uint16 .npy, format version 1.
inline void write_tokens(const std::filesystem::path& to, std::int64_t count, std::int64_t vocab_size) {
  std::string header = "{'descr': '<u2', 'fortran_order': False, 'shape': (" + std::to_string(count) + ",), }";
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  std::ofstream file(to, std::ios::binary);
  const auto length = static_cast<std::uint16_t>(header.size());
  file.write("\x93NUMPY\x01\x00", 8);
  file.write(reinterpret_cast<const char*>(&length), 2);
  file << header;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto token = static_cast<std::uint16_t>(token_at(i, vocab_size));
    file.write(reinterpret_cast<const char*>(&token), 2);
  }
}

}  // namespace spillway::golden
