#include "formats/hf_config.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/file.h"
#include "formats/json_object.h"
#include "formats/shown.h"

namespace spillway {
namespace {

using nlohmann::json;

// Above these a size is a mistake, and products of sizes could overflow.
constexpr std::int64_t width_limit = 1 << 20;
constexpr std::int64_t layer_limit = 1 << 14;
constexpr std::int64_t vocabulary_limit = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t position_limit = (std::int64_t{1} << 31) - 1;

struct Kind {
  std::string_view model_type;
  Family family;
  std::string_view architecture;
  std::int64_t max_position_embeddings;  // when the file does not say
};

constexpr std::array kinds{
    Kind{"llama", Family::llama, "LlamaForCausalLM", 2048},
    Kind{"mistral", Family::llama, "MistralForCausalLM", 131072},
    Kind{"qwen2", Family::qwen2, "Qwen2ForCausalLM", 32768},
    Kind{"qwen3", Family::qwen3, "Qwen3ForCausalLM", 32768},
    Kind{"gpt2", Family::gpt2, "GPT2LMHeadModel", 1024},
};

// Keys that are read below, of all families.
constexpr auto read_keys = std::to_array<std::string_view>(
    {"model_type", "architectures", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
     "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps",
     "tie_word_embeddings", "rope_theta", "rope_scaling", "rope_parameters", "initializer_range", "torch_dtype",
     "dtype", "bos_token_id", "eos_token_id", "hidden_act", "sliding_window", "use_sliding_window", "layer_types",
     "quantization_config",
     // Each family's own, which the others must not set.
     "attention_bias", "mlp_bias", "n_embd", "n_layer", "n_head", "n_positions", "n_inner", "activation_function",
     "layer_norm_epsilon", "scale_attn_weights", "scale_attn_by_inverse_layer_idx"});

// Of gpt2, refused elsewhere like unknown keys; and the other way round.
constexpr auto gpt2_keys =
    std::to_array<std::string_view>({"n_embd", "n_layer", "n_head", "n_positions", "n_inner", "activation_function",
                                     "layer_norm_epsilon", "scale_attn_weights", "scale_attn_by_inverse_layer_idx"});
constexpr auto llama_keys = std::to_array<std::string_view>(
    {"num_key_value_heads", "head_dim", "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters", "hidden_act",
     "sliding_window", "use_sliding_window", "intermediate_size", "attention_bias", "mlp_bias"});

// Keys that change nothing in training here: who wrote the file, how to generate, what to report, and choices of
// precision or memory of another program.
constexpr auto harmless_keys = std::to_array<std::string_view>(
    {"transformers_version", "use_cache", "name_or_path", "task_specific_params", "tokenizer_class", "torchscript",
     "return_dict", "output_attentions", "output_hidden_states", "output_scores", "return_dict_in_generate",
     "use_bfloat16", "is_decoder", "pad_token_id", "sep_token_id", "decoder_start_token_id", "unk_token_id",
     "forced_bos_token_id", "forced_eos_token_id", "id2label", "label2id", "num_labels", "problem_type",
     "finetuning_task", "prefix", "keys_to_ignore_at_inference", "chunk_size_feed_forward", "max_window_layers",
     "n_ctx", "reorder_and_upcast_attn", "attn_implementation", "is_llama_config", "transformers.js_config", "auto_map",
     "unsloth_fixed", "unsloth_version", "gradient_checkpointing", "license", "model_max_length", "tf_legacy_loss",
     "begin_suppress_tokens", "suppress_tokens", "bad_words_ids", "exponential_decay_length_penalty",
     "remove_invalid_values",
     // Generation, in files of older versions.
     "do_sample", "temperature", "top_k", "top_p", "typical_p", "max_length", "min_length", "max_new_tokens",
     "num_beams", "num_beam_groups", "num_return_sequences", "diversity_penalty", "repetition_penalty",
     "encoder_no_repeat_ngram_size", "no_repeat_ngram_size", "length_penalty", "early_stopping"});

constexpr auto dropout_keys = std::to_array<std::string_view>(
    {"attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop", "residual_dropout",
     "embedding_dropout", "dropout", "mlp_dropout", "ffn_dropout", "classifier_dropout", "summary_first_dropout"});

bool is_one_of(std::string_view key, std::span<const std::string_view> keys) {
  return std::ranges::find(keys, key) != keys.end();
}

const Kind& kind_of(const JsonObject& file) {
  const std::string type = file.string("model_type", "");
  const auto* kind = std::ranges::find(kinds, type, &Kind::model_type);
  if (kind == kinds.end()) file.refuse("model_type", "only llama, mistral, qwen2, qwen3 and gpt2 can be trained here");
  return *kind;
}

std::string architecture_of(const JsonObject& file, const Kind& kind) {
  const json* list = file.find("architectures");
  if (list == nullptr || (list->is_array() && list->empty())) return std::string(kind.architecture);
  if (!list->is_array() || list->size() != 1 || !(*list)[0].is_string()) {
    file.refuse("architectures", "it must be a list of one name");
  }
  const auto& name = (*list)[0].get_ref<const std::string&>();
  if (name != kind.architecture) {
    throw UserError("{}: architectures is ['{}'], but for model_type {} only {} can be trained here", file.file(),
                    shown(name), kind.model_type, kind.architecture);
  }
  return name;
}

// Keys that no list knows. Those of another family are unknown to this one.
void refuse_unknown_keys(const JsonObject& file, Family family) {
  const std::span<const std::string_view> others =
      family == Family::gpt2 ? std::span<const std::string_view>(llama_keys) : gpt2_keys;
  for (const auto& [key, value] : file.json().items()) {
    const bool known = (is_one_of(key, read_keys) && !is_one_of(key, others)) || is_one_of(key, harmless_keys) ||
                       is_one_of(key, dropout_keys) || key.starts_with('_') || key.starts_with("summary_");
    if (known || is_trivial(value)) continue;
    file.refuse(key, "it is not known here and may change what the model computes; remove it if it does not");
  }
}

std::vector<std::string> dropout_notes(const JsonObject& file) {
  std::vector<std::string> notes;
  for (const std::string_view key : dropout_keys) {
    const json* value = file.find(key);
    if (value == nullptr || *value == 0 || key.starts_with("summary_") || key.starts_with("classifier_")) continue;
    if (!value->is_number()) file.refuse(key, "it must be a number");
    notes.push_back(fmt::format("{}: {} is {}; dropout is not applied", file.file(), key, value->dump()));
  }
  return notes;
}

void read_tokens(const JsonObject& file, ModelConfig& model) {
  const auto one = [&](std::string_view key, const json& value) {
    const bool valid = value.is_number_integer() && value >= 0 && value < vocabulary_limit;
    if (!valid) file.refuse(key, "it must be a token id or a list of them");
    return value.get<std::int64_t>();
  };
  if (const json* bos = file.find("bos_token_id")) model.bos_token_id = one("bos_token_id", *bos);
  const json* eos = file.find("eos_token_id");
  if (eos == nullptr) return;
  if (!eos->is_array()) {
    model.eos_token_ids = {one("eos_token_id", *eos)};
    return;
  }
  for (const json& id : *eos) model.eos_token_ids.push_back(one("eos_token_id", id));
}

void read_common(const JsonObject& file, ModelConfig& model) {
  model.vocab_size = file.size("vocab_size", vocabulary_limit);
  model.tie_word_embeddings = file.boolean("tie_word_embeddings", model.family == Family::gpt2);
  // 0 is a legal, if useless, spread.
  if (const json* range = file.find("initializer_range"); range == nullptr || *range != 0) {
    model.initializer_range = file.positive("initializer_range", 0.02);
  } else {
    model.initializer_range = 0;
  }
  model.torch_dtype = file.string("dtype", file.string("torch_dtype", ""));
  read_tokens(file, model);
  if (file.has("quantization_config")) {
    file.refuse("quantization_config", "quantized weights cannot be trained here; use the original model");
  }
}

void refuse_unless(bool right, const JsonObject& file, std::string_view key, std::string_view what) {
  if (!right) file.refuse(key, what);
}

void check_heads(const JsonObject& file, const ModelConfig& model, std::string_view heads_key) {
  if (model.num_attention_heads % model.num_key_value_heads != 0) {
    file.refuse("num_key_value_heads",
                fmt::format("it must divide {}, which is {}", heads_key, model.num_attention_heads));
  }
  if (model.num_attention_heads * model.head_dim > width_limit) {
    file.refuse(heads_key,
                fmt::format("with {} numbers a head that is more than {} in all", model.head_dim, width_limit));
  }
}

std::int64_t head_dim_of(const JsonObject& file, const ModelConfig& model, std::string_view width_key,
                         std::string_view heads_key) {
  if (model.hidden_size % model.num_attention_heads != 0) {
    file.refuse(width_key,
                fmt::format("it must be a multiple of {}, which is {}", heads_key, model.num_attention_heads));
  }
  return model.hidden_size / model.num_attention_heads;
}

// Keys a rope object may have; of others, any that says something is refused.
void refuse_unknown_rope_keys(const JsonObject& rope) {
  constexpr auto known =
      std::to_array<std::string_view>({"rope_type", "type", "rope_theta", "factor", "low_freq_factor",
                                       "high_freq_factor", "original_max_position_embeddings"});
  for (const auto& [key, value] : rope.json().items()) {
    if (is_one_of(key, known) || is_trivial(value)) continue;
    rope.refuse(key, "it is not implemented");
  }
}

void read_scaling(const JsonObject& object, Rope& rope) {
  const std::string_view type_key = object.has("rope_type") ? "rope_type" : "type";
  const std::string type = object.string(type_key, "default");
  if (type != "default" && type != "linear" && type != "llama3") {
    object.refuse(type_key, "only default, linear and llama3 are implemented");
  }
  refuse_unknown_rope_keys(object);
  rope.theta = object.positive("rope_theta", rope.theta);
  if (type == "default") return;
  rope.factor = object.positive("factor");
  if (type == "linear") {
    rope.scaling = RopeScaling::linear;
    return;
  }
  rope.scaling = RopeScaling::llama3;
  rope.low_freq_factor = object.positive("low_freq_factor");
  rope.high_freq_factor = object.positive("high_freq_factor");
  rope.original_max_position_embeddings = object.size("original_max_position_embeddings", position_limit);
  refuse_unless(rope.high_freq_factor > rope.low_freq_factor, object, "high_freq_factor",
                fmt::format("it must be above low_freq_factor, which is {}", rope.low_freq_factor));
}

// Up to version 4 of transformers rope_theta and rope_scaling; from 5 on rope_parameters, which has both.
void read_rope(const JsonObject& file, ModelConfig& model) {
  model.rope.theta = file.positive("rope_theta", 10000.0);
  const auto parameters = file.object("rope_parameters");
  const auto scaling = file.object("rope_scaling");
  if (parameters) {
    read_scaling(*parameters, model.rope);
  } else if (scaling) {
    read_scaling(*scaling, model.rope);
  }
}

// Windowed attention is not implemented; a window that no position reaches is none.
void refuse_windows(const JsonObject& file, const ModelConfig& model) {
  const bool qwen = model.family == Family::qwen2 || model.family == Family::qwen3;
  if (file.boolean("use_sliding_window", !qwen) && file.has("sliding_window")) {
    const std::int64_t window = file.size("sliding_window", position_limit);
    refuse_unless(window >= model.max_position_embeddings, file, "sliding_window",
                  fmt::format("windowed attention is not implemented: it must be null or at least "
                              "max_position_embeddings, which is {}",
                              model.max_position_embeddings));
  }
  const json* types = file.find("layer_types");
  if (types == nullptr) return;
  const auto is_full = [](const json& type) { return type == "full_attention"; };
  if (!types->is_array() || !std::ranges::all_of(*types, is_full)) {
    file.refuse("layer_types", "only a list of 'full_attention' is implemented");
  }
}

void read_llama_biases(const JsonObject& file, std::string_view model_type, ModelConfig& model) {
  const auto only_false = [&](std::string_view key) {
    refuse_unless(!file.boolean(key, false), file, key, fmt::format("{} models have no such biases", model_type));
  };
  const bool asked = file.boolean("attention_bias", false);
  if (model_type == "llama" || model_type == "qwen3") {
    model.attention_bias = model.attention_output_bias = asked;
  } else if (model_type == "qwen2") {
    model.attention_bias = true;  // always, and the key does not exist
  } else {
    only_false("attention_bias");
  }
  if (model_type == "llama") {
    model.mlp_bias = file.boolean("mlp_bias", false);
  } else {
    only_false("mlp_bias");
  }
}

void read_llama(const JsonObject& file, const Kind& kind, ModelConfig& model) {
  model.hidden_size = file.size("hidden_size", width_limit);
  model.intermediate_size = file.size("intermediate_size", width_limit);
  model.num_hidden_layers = file.size("num_hidden_layers", layer_limit);
  model.num_attention_heads = file.size("num_attention_heads", width_limit);
  // Absent means one a query head only in llama; the other families have other defaults, so their files say it.
  if (kind.model_type != "llama" && !file.json().contains("num_key_value_heads")) {
    file.refuse("num_key_value_heads", "a model of this type needs it");
  }
  model.num_key_value_heads = file.size("num_key_value_heads", width_limit, model.num_attention_heads);
  if (file.has("head_dim")) {
    model.head_dim = file.size("head_dim", width_limit);
  } else if (kind.family == Family::qwen3 && !file.json().contains("head_dim")) {
    model.head_dim = 128;
  } else {
    model.head_dim = head_dim_of(file, model, "hidden_size", "num_attention_heads");
  }
  if (model.head_dim % 2 != 0) {
    throw UserError("{}: head_dim is {}, but rotary embeddings need an even one", file.file(), model.head_dim);
  }
  check_heads(file, model, "num_attention_heads");
  model.max_position_embeddings = file.size("max_position_embeddings", position_limit, kind.max_position_embeddings);
  model.norm_epsilon = file.positive("rms_norm_eps", 1e-6);
  const std::string activation = file.string("hidden_act", "silu");
  refuse_unless(activation == "silu" || activation == "swish", file, "hidden_act", "only silu is implemented");
  read_llama_biases(file, kind.model_type, model);
  read_rope(file, model);
  refuse_windows(file, model);
}

// gpt2 files may use the common names instead of their own.
std::int64_t gpt2_size(const JsonObject& file, std::string_view key, std::string_view common_key, std::int64_t limit) {
  if (file.has(key) && file.has(common_key) && file.size(key, limit) != file.size(common_key, limit)) {
    file.refuse(common_key, fmt::format("{} is another number", key));
  }
  return file.has(common_key) ? file.size(common_key, limit) : file.size(key, limit);
}

void read_gpt2(const JsonObject& file, ModelConfig& model) {
  model.hidden_size = gpt2_size(file, "n_embd", "hidden_size", width_limit);
  model.num_hidden_layers = gpt2_size(file, "n_layer", "num_hidden_layers", layer_limit);
  model.num_attention_heads = gpt2_size(file, "n_head", "num_attention_heads", width_limit);
  model.max_position_embeddings = gpt2_size(file, "n_positions", "max_position_embeddings", position_limit);
  model.intermediate_size = file.size("n_inner", width_limit, 4 * model.hidden_size);
  model.num_key_value_heads = model.num_attention_heads;
  model.head_dim = head_dim_of(file, model, "n_embd", "n_head");
  check_heads(file, model, "n_head");
  model.norm_epsilon = file.positive("layer_norm_epsilon", 1e-5);
  model.attention_bias = model.attention_output_bias = model.mlp_bias = true;
  const std::string activation = file.string("activation_function", "gelu_new");
  refuse_unless(activation == "gelu_new" || activation == "gelu_pytorch_tanh", file, "activation_function",
                "only gelu_new and gelu_pytorch_tanh are implemented");
  refuse_unless(file.boolean("scale_attn_weights", true), file, "scale_attn_weights", "only true is implemented");
  refuse_unless(!file.boolean("scale_attn_by_inverse_layer_idx", false), file, "scale_attn_by_inverse_layer_idx",
                "only false is implemented");
}

json rope_scaling_of(const Rope& rope) {
  switch (rope.scaling) {
    case RopeScaling::none: return nullptr;
    case RopeScaling::linear: return {{"rope_type", "linear"}, {"type", "linear"}, {"factor", rope.factor}};
    case RopeScaling::llama3: break;
  }
  return {{"rope_type", "llama3"},
          {"factor", rope.factor},
          {"low_freq_factor", rope.low_freq_factor},
          {"high_freq_factor", rope.high_freq_factor},
          {"original_max_position_embeddings", rope.original_max_position_embeddings}};
}

json common_keys_of(const ModelConfig& model) {
  json file{{"model_type", model.model_type},
            {"architectures", json::array({model.architecture})},
            {"vocab_size", model.vocab_size},
            {"tie_word_embeddings", model.tie_word_embeddings},
            {"initializer_range", model.initializer_range},
            {"use_cache", true}};
  if (!model.torch_dtype.empty()) file["torch_dtype"] = model.torch_dtype;
  file["bos_token_id"] = model.bos_token_id ? json(*model.bos_token_id) : json();
  const auto& eos = model.eos_token_ids;
  file["eos_token_id"] = eos.size() == 1 ? json(eos[0]) : eos.empty() ? json() : json(eos);
  return file;
}

void add_gpt2_keys(const ModelConfig& model, json& file) {
  file["n_embd"] = model.hidden_size;
  file["n_layer"] = model.num_hidden_layers;
  file["n_head"] = model.num_attention_heads;
  file["n_positions"] = model.max_position_embeddings;
  file["n_inner"] = model.intermediate_size == 4 * model.hidden_size ? json() : json(model.intermediate_size);
  file["activation_function"] = "gelu_new";
  file["layer_norm_epsilon"] = model.norm_epsilon;
  // Their default is 0.1, which is not what was trained with here.
  for (const char* key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) file[key] = 0.0;
}

void add_llama_keys(const ModelConfig& model, json& file) {
  file["hidden_size"] = model.hidden_size;
  file["intermediate_size"] = model.intermediate_size;
  file["num_hidden_layers"] = model.num_hidden_layers;
  file["num_attention_heads"] = model.num_attention_heads;
  file["num_key_value_heads"] = model.num_key_value_heads;
  file["head_dim"] = model.head_dim;
  file["max_position_embeddings"] = model.max_position_embeddings;
  file["hidden_act"] = "silu";
  file["rms_norm_eps"] = model.norm_epsilon;
  file["rope_theta"] = model.rope.theta;
  file["rope_scaling"] = rope_scaling_of(model.rope);
  file["attention_dropout"] = 0.0;
  if (model.model_type == "llama" || model.model_type == "qwen3") file["attention_bias"] = model.attention_bias;
  if (model.model_type == "llama") file["mlp_bias"] = model.mlp_bias;
  if (model.model_type != "llama") file["sliding_window"] = nullptr;
  if (model.family != Family::llama) file["use_sliding_window"] = false;
}

}  // namespace

HfConfig parse_hf_config(std::string_view text, std::string_view file_name) {
  const json parsed = json::parse(text, nullptr, false);
  if (!parsed.is_object()) throw UserError("{}: not a JSON object", file_name);
  const JsonObject file(parsed, std::string(file_name));
  const Kind& kind = kind_of(file);
  HfConfig config;
  ModelConfig& model = config.model;
  model.family = kind.family;
  model.model_type = kind.model_type;
  model.architecture = architecture_of(file, kind);
  refuse_unknown_keys(file, kind.family);
  read_common(file, model);
  if (kind.family == Family::gpt2) {
    read_gpt2(file, model);
  } else {
    read_llama(file, kind, model);
  }
  config.notes = dropout_notes(file);
  return config;
}

HfConfig read_hf_config(const std::filesystem::path& path) {
  return parse_hf_config(read_small_file(path, 16 * mib), path.string());
}

std::string write_hf_config(const ModelConfig& model) {
  json file = common_keys_of(model);
  if (model.family == Family::gpt2) {
    add_gpt2_keys(model, file);
  } else {
    add_llama_keys(model, file);
  }
  return file.dump(2) + "\n";
}

}  // namespace spillway
