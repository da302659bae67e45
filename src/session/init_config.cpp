#include "session/init_config.h"

#include <fmt/ranges.h>

#include <array>

#include "base/error.h"
#include "model/presets.h"

namespace spillway {
namespace {

struct FamilyNames {
  std::string_view arch;
  Family family;
  std::string_view architecture;
};

constexpr std::array families = {
    FamilyNames{"llama", Family::llama, "LlamaForCausalLM"},
    FamilyNames{"qwen2", Family::qwen2, "Qwen2ForCausalLM"},
    FamilyNames{"qwen3", Family::qwen3, "Qwen3ForCausalLM"},
    FamilyNames{"gpt2", Family::gpt2, "GPT2LMHeadModel"},
};

const FamilyNames& family_named(std::string_view arch) {
  for (const FamilyNames& family : families)
    if (family.arch == arch) return family;
  throw UserError("--arch is '{}'; give llama, qwen2, qwen3 or gpt2", arch);
}

void set_family(ModelConfig& config, std::string_view arch) {
  const FamilyNames& names = family_named(arch);
  const bool gpt2 = names.family == Family::gpt2;
  config.family = names.family;
  config.model_type = names.arch;
  config.architecture = names.architecture;
  config.attention_bias = gpt2 || names.family == Family::qwen2;
  config.attention_output_bias = gpt2;
  config.mlp_bias = gpt2;
}

// Sizes with no usual value stay 0 and are asked for.
ModelConfig usual(std::string_view arch) {
  ModelConfig config;
  set_family(config, arch);
  const bool gpt2 = config.family == Family::gpt2;
  config.max_position_embeddings = gpt2 ? 1024 : 2048;
  config.norm_epsilon = gpt2 ? 1e-5 : 1e-6;
  config.tie_word_embeddings = gpt2;
  return config;
}

ModelConfig start_of(const InitOptions& options) {
  if (options.preset.empty()) return usual(options.arch);
  const Preset* preset = find_preset(options.preset);
  if (preset == nullptr) {
    std::vector<std::string> names;
    for (const Preset& known : presets()) names.emplace_back(known.name);
    throw UserError("--preset is '{}'; give one of {}", options.preset, fmt::join(names, ", "));
  }
  ModelConfig config = preset->config;
  if (options.arch.empty() || family_named(options.arch).family == config.family) return config;
  if (options.arch == "gpt2" || config.family == Family::gpt2)
    throw UserError("--preset {} is of the {} family and has no {} sizes; leave --arch out or choose another preset",
                    options.preset, name_of(config.family), options.arch);
  set_family(config, options.arch);
  return config;
}

// The two names of one size: at most one may be given, and only in the family that has it.
template <typename Number>
struct SizeNames {
  Number ModelConfig::*member;
  std::string_view name;
  Number InitOptions::*option;
  std::string_view gpt2_name;
  Number InitOptions::*gpt2_option;
};

template <typename Number>
void apply(ModelConfig& config, const InitOptions& options, const SizeNames<Number>& size) {
  const Number given = options.*size.option;
  const Number gpt2_given = options.*size.gpt2_option;
  const bool gpt2 = config.family == Family::gpt2;
  if (gpt2_given != 0 && !gpt2)
    throw UserError("{} is a key of gpt2, but the family is {}; use {}", size.gpt2_name, name_of(config.family),
                    size.name);
  if (given != 0 && gpt2_given != 0 && given != gpt2_given)
    throw UserError("{} and {} are one size but have two values, {} and {}; give one", size.name, size.gpt2_name, given,
                    gpt2_given);
  if (given != 0) config.*size.member = given;
  if (gpt2_given != 0) config.*size.member = gpt2_given;
}

void refuse_in_gpt2(const ModelConfig& config, bool given, std::string_view name) {
  if (given && config.family == Family::gpt2) throw UserError("{} is given, but gpt2 has none; leave it out", name);
}

void apply_sizes(ModelConfig& config, const InitOptions& o) {
  using O = InitOptions;
  using C = ModelConfig;
  const std::array sizes = {
      SizeNames<std::int64_t>{&C::hidden_size, "--hidden-size", &O::hidden_size, "--n-embd", &O::n_embd},
      SizeNames<std::int64_t>{&C::intermediate_size, "--intermediate-size", &O::intermediate_size, "--n-inner",
                              &O::n_inner},
      SizeNames<std::int64_t>{&C::num_hidden_layers, "--num-hidden-layers", &O::num_hidden_layers, "--n-layer",
                              &O::n_layer},
      SizeNames<std::int64_t>{&C::num_attention_heads, "--num-attention-heads", &O::num_attention_heads, "--n-head",
                              &O::n_head},
      SizeNames<std::int64_t>{&C::max_position_embeddings, "--max-position-embeddings", &O::max_position_embeddings,
                              "--n-positions", &O::n_positions},
  };
  for (const auto& size : sizes) apply(config, o, size);
  apply(config, o,
        SizeNames<double>{&C::norm_epsilon, "--rms-norm-eps", &O::rms_norm_eps, "--layer-norm-epsilon",
                          &O::layer_norm_epsilon});
  refuse_in_gpt2(config, o.num_key_value_heads != 0, "--num-key-value-heads");
  refuse_in_gpt2(config, o.head_dim != 0, "--head-dim");
  refuse_in_gpt2(config, o.rope_theta != 0, "--rope-theta");
  if (o.vocab_size != 0) config.vocab_size = o.vocab_size;
  if (o.num_key_value_heads != 0) config.num_key_value_heads = o.num_key_value_heads;
  if (o.rope_theta != 0) config.rope.theta = o.rope_theta;
  if (o.initializer_range != 0) config.initializer_range = o.initializer_range;
  if (o.tie_word_embeddings != "auto") config.tie_word_embeddings = o.tie_word_embeddings == "true";
}

// Sizes that follow from others, unless they were given.
void derive(ModelConfig& config, const InitOptions& o, const ModelConfig& start) {
  const bool gpt2 = config.family == Family::gpt2;
  const bool width_changed =
      config.hidden_size != start.hidden_size || config.num_attention_heads != start.num_attention_heads;
  if (gpt2 && o.n_inner == 0 && o.intermediate_size == 0 && config.hidden_size != start.hidden_size)
    config.intermediate_size = 4 * config.hidden_size;
  if (gpt2 || config.num_key_value_heads == 0) config.num_key_value_heads = config.num_attention_heads;
  if (o.head_dim != 0) {
    config.head_dim = o.head_dim;
  } else if (width_changed && config.num_attention_heads > 0) {
    if (config.hidden_size % config.num_attention_heads != 0)
      throw UserError("hidden_size {} is not a multiple of num_attention_heads {}; change one of them",
                      config.hidden_size, config.num_attention_heads);
    config.head_dim = config.hidden_size / config.num_attention_heads;
  }
}

void check(const ModelConfig& config) {
  const auto needs = [](std::int64_t value, std::string_view flag) {
    if (value <= 0) throw UserError("{} is missing; give it, or start from a --preset", flag);
  };
  needs(config.hidden_size, "--hidden-size");
  needs(config.intermediate_size, "--intermediate-size");
  needs(config.num_hidden_layers, "--num-hidden-layers");
  needs(config.num_attention_heads, "--num-attention-heads");
  if (config.num_attention_heads % config.num_key_value_heads != 0)
    throw UserError("num_attention_heads {} is not a multiple of num_key_value_heads {}; change one of them",
                    config.num_attention_heads, config.num_key_value_heads);
  if (config.has_rope() && config.head_dim % 2 != 0)
    throw UserError("head_dim {} is odd, but rotary positions need pairs; make it even", config.head_dim);
}

}  // namespace

ModelConfig config_of(const InitOptions& options) {
  const ModelConfig start = start_of(options);
  ModelConfig config = start;
  apply_sizes(config, options);
  derive(config, options, start);
  check(config);
  return config;
}

}  // namespace spillway
