#include "model/schema.h"

#include <fmt/format.h>

namespace spillway {
namespace {

void put_in_layer(std::vector<Parameter>& rows, std::size_t first, std::int64_t layer) {
  for (std::size_t r = first; r < rows.size(); ++r) rows[r].layer = layer;
}

std::vector<Parameter> gpt2_parameters(const ModelConfig& config) {
  const std::int64_t width = config.hidden_size;
  const std::int64_t inner = config.intermediate_size;
  std::vector<Parameter> rows = {
      {"wte.weight", {config.vocab_size, width}, Init::normal},
      {"wpe.weight", {config.max_position_embeddings, width}, Init::normal},
  };
  const auto vector = [&](const std::string& name, std::int64_t size, Init init) {
    rows.push_back({name, {size}, init});
  };
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::size_t first = rows.size();
    const std::string in = fmt::format("h.{}.", layer);
    vector(in + "ln_1.weight", width, Init::ones);
    vector(in + "ln_1.bias", width, Init::zeros);
    rows.push_back({in + "attn.c_attn.weight", {width, 3 * width}, Init::normal});
    vector(in + "attn.c_attn.bias", 3 * width, Init::zeros);
    rows.push_back({in + "attn.c_proj.weight", {width, width}, Init::residual_normal});
    vector(in + "attn.c_proj.bias", width, Init::zeros);
    vector(in + "ln_2.weight", width, Init::ones);
    vector(in + "ln_2.bias", width, Init::zeros);
    rows.push_back({in + "mlp.c_fc.weight", {width, inner}, Init::normal});
    vector(in + "mlp.c_fc.bias", inner, Init::zeros);
    rows.push_back({in + "mlp.c_proj.weight", {inner, width}, Init::residual_normal});
    vector(in + "mlp.c_proj.bias", width, Init::zeros);
    put_in_layer(rows, first, layer);
  }
  vector("ln_f.weight", width, Init::ones);
  vector("ln_f.bias", width, Init::zeros);
  return rows;
}

std::vector<Parameter> llama_parameters(const ModelConfig& config) {
  const std::int64_t width = config.hidden_size;
  const std::int64_t inner = config.intermediate_size;
  std::vector<Parameter> rows = {{"model.embed_tokens.weight", {config.vocab_size, width}, Init::normal}};
  const auto projection = [&](const std::string& name, std::int64_t out, std::int64_t in, bool bias) {
    rows.push_back({name + ".weight", {out, in}, Init::normal});
    if (bias) rows.push_back({name + ".bias", {out}, Init::zeros});
  };
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::size_t first = rows.size();
    const std::string in = fmt::format("model.layers.{}.", layer);
    rows.push_back({in + "input_layernorm.weight", {width}, Init::ones});
    projection(in + "self_attn.q_proj", config.query_size(), width, config.attention_bias);
    projection(in + "self_attn.k_proj", config.key_value_size(), width, config.attention_bias);
    projection(in + "self_attn.v_proj", config.key_value_size(), width, config.attention_bias);
    if (config.query_key_norm()) {
      rows.push_back({in + "self_attn.q_norm.weight", {config.head_dim}, Init::ones});
      rows.push_back({in + "self_attn.k_norm.weight", {config.head_dim}, Init::ones});
    }
    projection(in + "self_attn.o_proj", width, config.query_size(), config.attention_output_bias);
    rows.push_back({in + "post_attention_layernorm.weight", {width}, Init::ones});
    projection(in + "mlp.gate_proj", inner, width, config.mlp_bias);
    projection(in + "mlp.up_proj", inner, width, config.mlp_bias);
    projection(in + "mlp.down_proj", width, inner, config.mlp_bias);
    put_in_layer(rows, first, layer);
  }
  rows.push_back({"model.norm.weight", {width}, Init::ones});
  return rows;
}

}  // namespace

std::vector<Parameter> parameters_of(const ModelConfig& config) {
  std::vector<Parameter> rows = config.family == Family::gpt2 ? gpt2_parameters(config) : llama_parameters(config);
  if (!config.tie_word_embeddings) {
    rows.push_back({head_name(config), {config.vocab_size, config.hidden_size}, Init::normal});
  }
  return rows;
}

std::string embedding_name(const ModelConfig& config) {
  return config.family == Family::gpt2 ? "wte.weight" : "model.embed_tokens.weight";
}

std::string head_name(const ModelConfig& config) {
  return config.tie_word_embeddings ? embedding_name(config) : "lm_head.weight";
}

}  // namespace spillway
