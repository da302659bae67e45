// The smallest llama that has all that a llama has: for what looks at Programs, not at numbers.
#pragma once

#include "model/config.h"

namespace spillway {

// Its head is not tied.
inline ModelConfig tiny_llama() {
  ModelConfig config;
  config.vocab_size = 300;
  config.hidden_size = 32;
  config.intermediate_size = 48;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.num_key_value_heads = 2;
  config.head_dim = 16;
  config.max_position_embeddings = 64;
  return config;
}

}  // namespace spillway
