// What a model is, as its config.json says: plain data, with every default resolved. Reading and writing the file is
// the business of formats/hf_config.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

// Families by their maths. Mistral without a sliding window is llama; its own model_type is kept in ModelConfig.
enum class Family : std::uint8_t {
  llama,  // RMSNorm, rope, SwiGLU
  qwen2,  // llama with biases on the query, key and value projections
  qwen3,  // llama with RMSNorm on each query and key head, and a head_dim of its own
  gpt2,   // LayerNorm, learned positions, GELU (tanh), weights stored as (inputs, outputs)
};
std::string_view name_of(Family family);

enum class RopeScaling : std::uint8_t { none, linear, llama3 };

struct Rope {
  double theta = 10000;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1;                                     // of linear and llama3
  double low_freq_factor = 1;                            // of llama3
  double high_freq_factor = 4;                           // of llama3
  std::int64_t original_max_position_embeddings = 8192;  // of llama3

  bool operator==(const Rope&) const = default;
};

// The names are those of config.json in the llama family, also for gpt2.
struct ModelConfig {
  Family family = Family::llama;
  std::string model_type;    // as stored: "llama", "mistral", "qwen2", "qwen3", "gpt2"
  std::string architecture;  // "LlamaForCausalLM", "GPT2LMHeadModel", …
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;  // divides num_attention_heads
  std::int64_t head_dim = 0;             // even, except in gpt2
  std::int64_t max_position_embeddings = 0;
  double norm_epsilon = 1e-6;  // of RMSNorm or LayerNorm
  bool tie_word_embeddings = false;
  bool attention_bias = false;         // query, key and value projections have biases
  bool attention_output_bias = false;  // the output projection of attention has one
  bool mlp_bias = false;
  Rope rope;  // unused in gpt2
  double initializer_range = 0.02;
  std::string torch_dtype;  // as stored ("float32", "bfloat16", "float16"); empty when the file does not say
  std::optional<std::int64_t> bos_token_id;
  std::vector<std::int64_t> eos_token_ids;  // none, one or several

  bool has_rope() const { return family != Family::gpt2; }
  bool query_key_norm() const { return family == Family::qwen3; }
  std::int64_t query_size() const { return num_attention_heads * head_dim; }
  std::int64_t key_value_size() const { return num_key_value_heads * head_dim; }
  bool operator==(const ModelConfig&) const = default;
};

// head_dim / 2 angles a position: entry i is theta^(-2i / head_dim), scaled as the config says (linear: divided by the
// factor; llama3: as published with Llama 3.1, long wavelengths divided by the factor, short ones kept, a smooth change
// between). Computed in double, rounded once. The config must have rope.
std::vector<float> rope_inverse_frequencies(const ModelConfig& config);

}  // namespace spillway
