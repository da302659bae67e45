#include "model/presets.h"

#include <algorithm>
#include <array>

namespace spillway {
namespace {

// openai-community/gpt2
ModelConfig gpt2_124m() {
  ModelConfig c;
  c.family = Family::gpt2;
  c.model_type = "gpt2";
  c.architecture = "GPT2LMHeadModel";
  c.vocab_size = 50257;
  c.hidden_size = 768;
  c.intermediate_size = 3072;
  c.num_hidden_layers = 12;
  c.num_attention_heads = 12;
  c.num_key_value_heads = 12;
  c.head_dim = 64;
  c.max_position_embeddings = 1024;
  c.norm_epsilon = 1e-5;
  c.tie_word_embeddings = true;
  c.attention_bias = true;
  c.attention_output_bias = true;
  c.mlp_bias = true;
  c.bos_token_id = 50256;
  c.eos_token_ids = {50256};
  return c;
}

ModelConfig llama() {
  ModelConfig c;
  c.family = Family::llama;
  c.model_type = "llama";
  c.architecture = "LlamaForCausalLM";
  c.norm_epsilon = 1e-5;
  return c;
}

// HuggingFaceTB/SmolLM2-135M
ModelConfig smollm2_135m() {
  ModelConfig c = llama();
  c.vocab_size = 49152;
  c.hidden_size = 576;
  c.intermediate_size = 1536;
  c.num_hidden_layers = 30;
  c.num_attention_heads = 9;
  c.num_key_value_heads = 3;
  c.head_dim = 64;
  c.max_position_embeddings = 8192;
  c.tie_word_embeddings = true;
  c.rope.theta = 100000;
  c.initializer_range = 0.041666666666666664;
  c.torch_dtype = "bfloat16";
  c.bos_token_id = 0;
  c.eos_token_ids = {0};
  return c;
}

// Qwen/Qwen2.5-0.5B
ModelConfig qwen25_05b() {
  ModelConfig c;
  c.family = Family::qwen2;
  c.model_type = "qwen2";
  c.architecture = "Qwen2ForCausalLM";
  c.vocab_size = 151936;
  c.hidden_size = 896;
  c.intermediate_size = 4864;
  c.num_hidden_layers = 24;
  c.num_attention_heads = 14;
  c.num_key_value_heads = 2;
  c.head_dim = 64;
  c.max_position_embeddings = 32768;
  c.norm_epsilon = 1e-6;
  c.tie_word_embeddings = true;
  c.attention_bias = true;
  c.rope.theta = 1000000;
  c.torch_dtype = "bfloat16";
  c.bos_token_id = 151643;
  c.eos_token_ids = {151643};
  return c;
}

// TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T
ModelConfig tinyllama_11b() {
  ModelConfig c = llama();
  c.vocab_size = 32000;
  c.hidden_size = 2048;
  c.intermediate_size = 5632;
  c.num_hidden_layers = 22;
  c.num_attention_heads = 32;
  c.num_key_value_heads = 4;
  c.head_dim = 64;
  c.max_position_embeddings = 2048;
  c.torch_dtype = "float32";
  c.bos_token_id = 1;
  c.eos_token_ids = {2};
  return c;
}

// meta-llama/Meta-Llama-3-8B
ModelConfig llama3_8b() {
  ModelConfig c = llama();
  c.vocab_size = 128256;
  c.hidden_size = 4096;
  c.intermediate_size = 14336;
  c.num_hidden_layers = 32;
  c.num_attention_heads = 32;
  c.num_key_value_heads = 8;
  c.head_dim = 128;
  c.max_position_embeddings = 8192;
  c.rope.theta = 500000;
  c.torch_dtype = "bfloat16";
  c.bos_token_id = 128000;
  c.eos_token_ids = {128001};
  return c;
}

// 3.2 M parameters: learns the spelling and some grammar of a text within minutes on two cores.
ModelConfig demo() {
  ModelConfig c = llama();
  c.hidden_size = 256;
  c.intermediate_size = 768;
  c.num_hidden_layers = 4;
  c.num_attention_heads = 4;
  c.num_key_value_heads = 2;
  c.head_dim = 64;
  c.max_position_embeddings = 1024;
  c.tie_word_embeddings = true;
  c.torch_dtype = "float32";
  return c;
}

}  // namespace

std::span<const Preset> presets() {
  static const std::array all = {
      Preset{"gpt2-124m", "GPT-2, 124 M parameters", gpt2_124m()},
      Preset{"smollm2-135m", "SmolLM2 135 M, llama with grouped heads and a tied head", smollm2_135m()},
      Preset{"qwen2.5-0.5b", "Qwen2.5 0.5 B", qwen25_05b()},
      Preset{"tinyllama-1.1b", "TinyLlama 1.1 B", tinyllama_11b()},
      Preset{"llama3-8b", "Llama 3 8 B", llama3_8b()},
      Preset{"demo", "a llama of 3 M parameters that learns within minutes", demo()},
  };
  return all;
}

const Preset* find_preset(std::string_view name) {
  const auto all = presets();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Preset& preset) { return preset.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace spillway
